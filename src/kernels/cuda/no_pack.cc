// Linked instead of the CUDA packing kernels where the build has no CUDA.
#include "kernels/cuda/pack/pack.h"

namespace segue::kernels::cuda {
namespace {

Error NoCuda(const char* operation) {
  return {.code = ErrorCode::kUnsupported,
          .operation = operation,
          .argument = "stream",
          .got = "a build without CUDA",
          .wanted = "a build with the preset 'cuda'"};
}

}  // namespace

const char* RejectsDevice(const Context&) { return "this build has no CUDA"; }

Status CopyBytes(const CopyParams&, const Context&) { return NoCuda("copy bytes"); }

Status PackIndex(const PackIndexParams&, const Context&) { return NoCuda("pack index"); }

Status PackRows(const PackParams&, const Context&) { return NoCuda("pack rows"); }

Status ScatterRows(const PackParams&, const Context&) { return NoCuda("scatter rows"); }

}  // namespace segue::kernels::cuda
