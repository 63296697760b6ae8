// Operands of our kernel in device memory, as a transformer has them: fused projections, rotating.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/attention_case.h"
#include "bench/attention_check.h"
#include "bench/gpu_measure.h"
#include "kernels/attention_sm90.h"
#include "kernels/refresh_schedule.h"

namespace segue::bench {

// Sets of operands to rotate through, so that inputs never come out of the L2 cache: more than
// twice its 60 MB.
int64_t RotatingSets(int64_t bytes_of_one);

class AttentionOperands {
 public:
  // Random contents, outputs full of NaN. Errors: memory; no GPU that has the kernel.
  static Result<AttentionOperands> Create(const AttentionCase& shape, const GpuStream& stream);

  // Runs every set once and checks: no row of a sequence was left out, none outside was written,
  // and samples agree with float64.
  Status Verify(const std::string& name, int threads, const GpuStream& stream);

  // The kernel over each set in turn; lengths come out of device memory. Outlived by this object.
  GpuContender Attention();
  // The schedule's refresh alone.
  GpuContender Refresh();

 private:
  // Slices of one tensor: fused [rows, (heads + 2 kv_heads) x head_dim], out [rows, heads x
  // head_dim].
  struct Tensor {
    GpuBuffer fused;
    GpuBuffer out;
  };
  using Set = std::vector<Tensor>;

  Status MakeSchedule(const GpuStream& stream);
  kernels::AttentionSm90Params Params(int64_t set) const;
  Status CheckCoverage(const Set& set, const std::string& name, const GpuStream& stream) const;
  std::vector<CheckedSequence> Checked(const Set& set) const;
  int64_t FusedWidth() const;
  int64_t OutWidth() const;

  AttentionCase shape_;
  std::vector<Set> sets_;
  kernels::ScheduleShape schedule_shape_{};
  GpuBuffer rows_;
  GpuBuffer count_;
  GpuBuffer schedule_;
  GpuBuffer counters_;
};

}  // namespace segue::bench
