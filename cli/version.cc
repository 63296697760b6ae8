#include "cli/version.h"

#include "segue_commit.h"

namespace segue::cli {
namespace {

// The processor's features that kernels choose by, found at run time.
std::string ProcessorFeatures() {
  std::string text;
#if defined(__x86_64__)
  text = "x86-64";
  const auto add = [&text](const char* name, bool present) {
    if (present) text += std::string(" ") + name;
  };
  add("AVX", __builtin_cpu_supports("avx") != 0);
  add("AVX2", __builtin_cpu_supports("avx2") != 0);
  add("FMA", __builtin_cpu_supports("fma") != 0);
  add("F16C", __builtin_cpu_supports("f16c") != 0);
  add("AVX512F", __builtin_cpu_supports("avx512f") != 0);
  add("AVX512BW", __builtin_cpu_supports("avx512bw") != 0);
  add("AVX512VNNI", __builtin_cpu_supports("avx512vnni") != 0);
  add("AVX512BF16", __builtin_cpu_supports("avx512bf16") != 0);
#elif defined(__aarch64__)
  text = "aarch64 NEON";
#else
  text = "unknown";
#endif
  return text;
}

}  // namespace

const char* VersionNumber() { return SEGUE_VERSION; }

const char* VersionCommit() { return SEGUE_COMMIT; }

std::string VersionText() {
  std::string text = std::string("segue ") + SEGUE_VERSION + "\n";
  text += std::string("commit: ") + SEGUE_COMMIT + "\n";
  text += std::string("compiler: ") + SEGUE_COMPILER + ", " + SEGUE_BUILD_TYPE + "\n";
  text += std::string("CUDA: ") + SEGUE_CUDA_TEXT + "\n";
  text += "CPU: " + ProcessorFeatures() + "\n";
  return text;
}

}  // namespace segue::cli
