#include "kernels/reference.h"

namespace segue::kernels {

Status RefCopyBytes(const CopyParams& params, const Context&) {
  const char* from = static_cast<const char*>(params.from);
  char* to = static_cast<char*>(params.to);
  for (int64_t i = 0; i < params.bytes; ++i) to[i] = from[i];
  return {};
}

}  // namespace segue::kernels
