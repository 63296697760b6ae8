#include "kernels/cpu/isa.h"

namespace segue::kernels::cpu {
namespace {

#if defined(__x86_64__)
bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("f16c");
  return has;
}

bool HasAvx512() {
  static const bool has = HasAvx2() && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}
#else
bool HasAvx2() { return false; }
bool HasAvx512() { return false; }
#endif

}  // namespace

const char* MissingIsa(CpuIsa isa, const Context& context) {
  if (context.stream.device() != DeviceKind::kCpu) return "works on host memory only";
  if (isa > context.widest_isa) return "a narrower instruction set was asked for";
  if (isa == CpuIsa::kAvx512 && !HasAvx512()) return "this processor has no AVX-512";
  if (isa == CpuIsa::kAvx2 && !HasAvx2()) return "this processor has no AVX2 with FMA";
  return nullptr;
}

}  // namespace segue::kernels::cpu
