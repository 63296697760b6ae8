#include "device/tensor_view.h"

namespace segue {

MatrixView MatrixView::Rows(int64_t begin, int64_t count) const {
  MatrixView view = *this;
  view.data = static_cast<char*>(data) + begin * stride * static_cast<int64_t>(SizeOf(dtype));
  view.rows = count;
  return view;
}

MatrixView MatrixView::Cols(int64_t begin, int64_t count) const {
  MatrixView view = *this;
  view.data = static_cast<char*>(data) + begin * static_cast<int64_t>(SizeOf(dtype));
  view.cols = count;
  return view;
}

MatrixView ContiguousMatrix(float* data, int64_t rows, int64_t cols) {
  return ContiguousMatrix(data, DType::kF32, rows, cols);
}

MatrixView ContiguousMatrix(void* data, DType dtype, int64_t rows, int64_t cols) {
  return {.data = data, .dtype = dtype, .rows = rows, .cols = cols, .stride = cols};
}

}  // namespace segue
