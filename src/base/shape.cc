#include "base/shape.h"

namespace segue {

std::string Shape::ToString() const {
  std::string text = "[";
  for (int axis = 0; axis < rank_; ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(extents_[axis]);
  }
  return text + "]";
}

}  // namespace segue
