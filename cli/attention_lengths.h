// Lengths of sequences and GPUs on a command line.
#pragma once

#include <string>
#include <vector>

#include "segue/attention_plan.h"
#include "segue/status.h"

namespace segue::cli {

struct AttentionLengths {
  int32_t sequences = 0;
  int32_t segments = 0;                        // of the sequence that has most
  std::vector<attention::TensorRows> tensors;  // the k-th segment of every sequence lies in one
  std::vector<attention::SegmentRows> rows;    // [sequences, segments]
};

// "64+4096,14+4096": sequences apart by commas, their segments by plus signs, each a number of rows
// or two of them, query:key (0:77 has keys only).
Result<AttentionLengths> ParseLengths(const std::string& option, const std::string& text);

// "9.0:132": compute capability and multiprocessors.
Result<attention::Gpu> ParseGpu(const std::string& option, const std::string& text);

}  // namespace segue::cli
