// Tensors on the GPU and plans over them. Batches are rows of the same tensors, so that a
// sequence's outputs can be compared byte for byte wherever it stands.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "gpu/attention_batch.h"
#include "segue/attention_plan.h"

namespace segue::attention {

using Rows = std::vector<SegmentRows>;

// Whose plans, and of which size.
struct RigKind {
  std::string backend = "sm90";
  int32_t head_dim = 128;

  friend std::ostream& operator<<(std::ostream& out, const RigKind& kind) {
    return out << kind.backend << ", head_dim " << kind.head_dim;
  }
};

// Sources of random bfloat16 rows, slices of one fused [rows, (q_heads + 2 kv_heads) head_dim]
// tensor each, and outputs of canaries.
class PlanRig {
 public:
  static constexpr int32_t kSegments = 3;
  static constexpr int32_t kSequences = 12;

  // `copies` of the outputs, so that calls in flight need not share them.
  PlanRig(const RigKind& kind, bool causal, uint32_t seed, int copies = 1);

  PlanSettings Settings() const;
  std::vector<TensorSet> Sets(int copy = 0) const;
  // The same contents as [heads, rows, head_dim] tensors, outputs of their own.
  std::vector<TensorSet> TransposedSets();

  // Lengths of random sequences whose rows do not overlap, none in the first `reserved` rows.
  Rows RandomBatch(std::mt19937& random, int32_t sequences, int32_t reserved = 0) const;

  void Clear();  // outputs and log-sum-exp become canaries; waits
  std::vector<uint16_t> Outputs(int copy = 0) const;  // of all sources; waits
  std::vector<uint16_t> TransposedOutputs() const;    // in the order of Outputs; waits
  std::vector<float> Lse() const;
  float* lse() const { return static_cast<float*>(lse_->data()); }
  int64_t lse_stride() const { return lse_stride_; }
  bool Untouched(int copy = 0) const;

  // What is wrong with a few rows of every segment, judged against float64; empty: nothing.
  std::string CheckSome(const Rows& rows, const std::vector<uint16_t>& outputs) const;
  // The output bytes of sequence `index`.
  std::vector<uint16_t> OutputsOf(const Rows& rows, int32_t index,
                                  const std::vector<uint16_t>& outputs) const;

 private:
  struct Source {
    int32_t rows = 0;
    std::vector<uint16_t> fused;
    std::unique_ptr<kernels::GpuMemory> device;
    std::vector<std::unique_ptr<kernels::GpuMemory>> outputs;
    std::unique_ptr<kernels::GpuMemory> transposed;
    std::unique_ptr<kernels::GpuMemory> transposed_output;
  };
  float Value(int32_t source, int32_t row, int32_t head, int32_t dim) const;
  double Expected(const Rows& rows, size_t segment, int32_t row, int32_t head, int32_t dim) const;
  int64_t OutputOffset(int32_t source, int32_t row) const;

  RigKind kind_;
  bool causal_;
  std::vector<Source> sources_;
  std::unique_ptr<kernels::GpuMemory> lse_;
  int64_t lse_stride_ = 0;
};

// A plan, its workspace and device memory for lengths.
class GpuPlan {
 public:
  explicit GpuPlan(const PlanSettings& settings);

  std::string failure() const { return failure_; }
  Plan& plan() { return *plan_; }
  void* workspace() const { return workspace_->data(); }

  // Each returns the error's message, empty when there is none.
  std::string SetLengths(const Rows& rows, void* stream = nullptr);
  // Writes lengths where Refresh reads them; waits for the device.
  void WriteDeviceLengths(const Rows& rows, int32_t sequences = -1);
  std::string Refresh(void* stream = nullptr);
  std::string Run(const PlanRig& rig, void* stream = nullptr, int copy = 0, bool lse = true);
  std::string Run(std::vector<TensorSet> sets, void* stream = nullptr);

 private:
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<kernels::GpuMemory> workspace_;
  std::unique_ptr<kernels::GpuMemory> rows_;
  std::unique_ptr<kernels::GpuMemory> count_;
  std::string failure_;
};

}  // namespace segue::attention
