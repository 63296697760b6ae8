// Moves weights from files to where they were placed: several threads read, and copies to the
// device run beside them.
#pragma once

#include <cstdint>
#include <functional>

#include "base/span.h"
#include "model/weights/weight_lane.h"
#include "model/weights/weight_reads.h"
#include "segue/status.h"

namespace segue::model {

// Each thread has kLaneSlots chunks page-locked, which costs half a second a GiB, one thread at a
// time and nothing copied meanwhile. Disks want large reads. Memory gives small ones as fast: half
// of 1 MiB is still a hundred times what a copy's launch costs.
inline constexpr int64_t kDiskChunkBytes = int64_t{4} << 20;
inline constexpr int64_t kCachedChunkBytes = int64_t{1} << 20;

struct WeightLoadOptions {
  // Threads that read; 0: one a processor, at most 16. One thread copies out of the page cache at
  // about 4.5 GB/s, twelve keep a PCIe 5 bus busy.
  int threads = 0;
  // Of one read. Rounded up to kReadAlignment; 0: kCachedChunkBytes where the page cache holds the
  // files, else kDiskChunkBytes.
  int64_t chunk_bytes = 0;
  // See WeightFile.
  bool past_page_cache = true;
  // Called on the calling thread every 50 ms or so and at the end, with bytes read and bytes to
  // read; false ends the load with kCancelled. May be null.
  std::function<bool(int64_t done, int64_t total)> progress;
};

struct WeightLoadReport {
  int64_t file_bytes = 0;    // read from files
  int64_t direct_bytes = 0;  // of them past the page cache
  int64_t placed_bytes = 0;  // of weights now in place, random ones included
  double seconds = 0;
};

// Fills every transfer's memory, converting to bfloat16. When it returns, also with an error,
// nothing is on its way any more. Errors name file, tensor and byte: a file that ends too early
// (kCorrupt), what the system or the device refuses (kIo, kUnsupported), no host memory to read
// into (kOutOfMemory), progress that said no (kCancelled). The memory's contents are then
// arbitrary.
Result<WeightLoadReport> LoadWeights(Span<const WeightTransfer> transfers,
                                     const WeightTarget& target, const WeightLoadOptions& options);

}  // namespace segue::model
