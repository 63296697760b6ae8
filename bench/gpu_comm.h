// Sums over several GPUs beside NCCL, and fused with the norm behind them.
#pragma once

#include "bench/suite.h"

namespace segue::bench {

// Case values: kib (bfloat16, of each rank's partial sums), ranks (2), and how the sum is spread:
// ctas (0: as many as fit), threads (512), unroll (4). Rows: hot and burst, in GB/s of the bytes
// summed. The peer is NCCL on the same data, multicast off, where it can be loaded. Graphs are
// recorded and launched by a thread a GPU, in step: as many launches on each. The bytes of the
// definition are required of ours, and of NCCL for two ranks, before anything is timed.
Result<std::vector<Row>> BenchGpuSum(const Case& one, const SuiteOptions& options);

// Case values: image and text (rows of the two streams), width. The peer is our own sum followed by
// our own ModulatedNorm, whose bytes are required.
Result<std::vector<Row>> BenchGpuSumNorm(const Case& one, const SuiteOptions& options);

}  // namespace segue::bench
