#include "kernels/copy.h"

#include <string>

#include "kernels/check.h"
#include "kernels/cpu/pack_rows.h"
#include "kernels/cuda/device_check.h"
#include "kernels/cuda/pack/pack.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "copy bytes";

constexpr Kernel<CopyParams> kCopyKernels[] = {
    {"cuda", cuda::NeedsCuda<CopyParams>, cuda::CopyBytes},
    {"cpu", NeedsCpu<CopyParams>, cpu::CopyBytes},
    {"ref", NeedsCpu<CopyParams>, RefCopyBytes, kReference},
};

}  // namespace

Status CopyBytes(const CopyParams& params, const Context& context) {
  if (params.bytes < 0)
    return ArgumentError(kOp, "bytes", std::to_string(params.bytes), "0 or more");
  SEGUE_RETURN_IF_ERROR(CheckPresent(kOp, "from", params.from, params.bytes));
  SEGUE_RETURN_IF_ERROR(CheckPresent(kOp, "to", params.to, params.bytes));
  if (params.bytes == 0) return {};
  const uintptr_t together = reinterpret_cast<uintptr_t>(params.from) |
                             reinterpret_cast<uintptr_t>(params.to) |
                             static_cast<uintptr_t>(params.bytes);
  if (context.stream.device() == DeviceKind::kCuda && together % 16 != 0) {
    return ArgumentError(kOp, "from, to or bytes", "no multiple of 16", "multiples of 16");
  }
  return Dispatch<CopyParams>(kOp, kCopyKernels, params, context);
}

}  // namespace segue::kernels
