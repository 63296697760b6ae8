#include "bench/cpu_attention.h"
#include "bench/cpu_product.h"
#include "bench/generate.h"
#include "bench/gpu_attention.h"
#include "bench/gpu_comm.h"
#include "bench/gpu_dit.h"
#include "bench/gpu_host.h"
#include "bench/gpu_image.h"
#include "bench/gpu_load.h"
#include "bench/gpu_pack.h"
#include "bench/gpu_rows.h"
#include "bench/gpu_text.h"
#include "bench/gpu_vae.h"
#include "bench/suite.h"

namespace segue::bench {

const std::map<std::string, Driver>& Drivers() {
  static const std::map<std::string, Driver> drivers = {
      {"attention", BenchAttention},
      {"generate", BenchGenerate},
      {"gpu_attention", BenchGpuAttention},
      {"gpu_dit", BenchGpuDit},
      {"gpu_host", BenchGpuHost},
      {"gpu_image", BenchGpuImage},
      {"gpu_in_place", BenchGpuInPlace},
      {"gpu_load", BenchGpuLoad},
      {"gpu_pack", BenchGpuPack},
      {"gpu_rows", BenchGpuRows},
      {"gpu_scatter", BenchGpuScatter},
      {"gpu_sum", BenchGpuSum},
      {"gpu_sum_norm", BenchGpuSumNorm},
      {"gpu_text", BenchGpuText},
      {"gpu_vae", BenchGpuVae},
      {"product", BenchProduct},
  };
  return drivers;
}

}  // namespace segue::bench
