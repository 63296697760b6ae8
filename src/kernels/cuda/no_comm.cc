// Linked instead of the CUDA kernels of groups where the build has no CUDA.
#include "kernels/all_reduce.h"

namespace segue::kernels {
namespace {

Error NoCuda(const char* operation) {
  return {.code = ErrorCode::kUnsupported,
          .operation = operation,
          .argument = "stream",
          .got = "a build without CUDA",
          .wanted = "a build with the preset 'cuda'"};
}

}  // namespace

Result<ReduceRoom> MaxReduceCtas(int32_t) { return NoCuda("start a group"); }
int32_t SumNormWarps(int64_t) { return 1; }
Status WarmReduce(const Stream&) { return NoCuda("start a group"); }
Status OneShotAllReduce(const AllReduceParams&, const Context&) { return NoCuda("all_reduce"); }
Status TwoShotAllReduce(const AllReduceParams&, const Context&) { return NoCuda("all_reduce"); }
Status SumModulatedNorm(const SumNormParams&, const Context&) {
  return NoCuda("sum_modulated_norm");
}
Status WriteProbes(const PeerGroup&, uint32_t, const Stream&) { return NoCuda("probe peers"); }
Status ReadProbes(const PeerGroup&, const Stream&) { return NoCuda("probe peers"); }

}  // namespace segue::kernels
