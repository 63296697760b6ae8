// A batch of random sequences on the GPU, run through one of our kernels and judged against
// float64.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpu/gpu_memory.h"
#include "kernels/attention_cuda.h"
#include "kernels/attention_sm90.h"
#include "kernels/refresh_schedule.h"

namespace segue::kernels {

struct SegmentLength {
  int32_t q_rows;
  int32_t kv_rows;
};
using SequenceLengths = std::vector<SegmentLength>;

struct BatchOptions {
  int32_t q_heads = 2;
  int32_t kv_heads = 2;
  bool causal = false;
  attention::ElementType element_type = attention::ElementType::kBFloat16;
  // Of every row of Q, K and V that belongs to no sequence: a bfloat16 or float16 pattern.
  uint16_t poison = 0x7fff;  // NaN
  int32_t sequences = 0;     // capacity; 0: as many as the first lengths
  int32_t rows = 0;          // capacity of each source; 0: as the first lengths need
  int32_t gap = 5;           // rows between sequences, and before the first
  int32_t ctas = 0;          // 0: as the GPU has
  // Check looks at each of so many query rows, and the first and last two of every sequence.
  int32_t rows_apart = 1;
  GpuMemory::Place place = GpuMemory::Place::kAnywhere;
  enum class Backend : uint8_t { kSm90, kCuda };
  Backend backend = Backend::kSm90;
  int32_t head_dim = 128;
};

// Source s holds segment s of every sequence, rows one after the other with gaps between, as slices
// of one fused [rows, (q_heads + 2 kv_heads) x head_dim] tensor; O has a tensor of its own.
class Batch {
 public:
  Batch(const std::vector<SequenceLengths>& lengths, const BatchOptions& options, uint32_t seed);

  // Other lengths in the same memory; new random contents.
  void SetLengths(const std::vector<SequenceLengths>& lengths, uint32_t seed);
  // Overwrites the rows that belong to no sequence, and the outputs, by a pattern.
  void Poison(uint16_t pattern) { Poison(pattern, pattern, pattern); }
  void Poison(uint16_t q, uint16_t k, uint16_t v);
  // Gives every element that belongs to a sequence another value.
  enum class Part : uint8_t { kQ, kK, kV };
  struct Element {
    float value;
    int32_t row;  // of the source
    int32_t column;
  };
  void Fill(Part part, const std::function<float(const Element&)>& value);
  // Copies contents of sequence `from` of another batch to sequence `to`, of equal lengths.
  void CopySequence(const Batch& other, int32_t from, int32_t to);
  void Upload();

  Status Refresh(const Stream& stream);
  Status Run(const Stream& stream);
  // Waits, reads the outputs, and returns what is wrong with them; empty when nothing is.
  std::string Check();
  // The bytes of a sequence's outputs and log-sum-exp, after Check or Fetch.
  void Fetch();
  std::vector<uint16_t> OutputOf(int32_t sequence) const;
  std::vector<float> LseOf(int32_t sequence) const;

  const ScheduleShape& shape() const { return shape_; }
  const std::vector<SegmentRows>& rows() const { return rows_; }
  int32_t sequences() const { return static_cast<int32_t>(lengths_.size()); }
  std::vector<uint8_t> ReadSchedule() const;
  void WriteSegment(int32_t index, const SegmentRows& rows) { rows_[index] = rows; }
  bool OutputsUntouched() const;
  bool InputsUntouched() const;  // of those last uploaded
  // Outputs and log-sum-exp in device memory; a whole number of 4-byte words each.
  struct DeviceBytes {
    void* data;
    int64_t bytes;
  };
  std::vector<DeviceBytes> Results() const;

 private:
  struct Source {
    int32_t rows = 0;
    std::vector<uint16_t> fused;  // host copies
    std::vector<uint16_t> output;
    GpuMemory* device_fused = nullptr;
    GpuMemory* device_output = nullptr;
    std::vector<bool> q_used;
    std::vector<bool> kv_used;
  };

  void Place();
  attention::TensorSet TensorsOf(const Source& source) const;
  Status RunSm90(const Stream& stream);
  Status RunCuda(const Stream& stream);
  void Complete(AttentionCall& call) const;
  float Value(uint16_t bits) const;
  uint16_t Bits(float value) const;
  const std::vector<bool>& Used(const Source& source, int32_t head) const;
  uint16_t* Row(Source& source, int32_t row, int32_t head);  // head of Q, then K, then V
  const uint16_t* Row(const Source& source, int32_t row, int32_t head) const;
  std::string CheckSequence(int32_t sequence, int64_t lse_begin) const;
  std::string CheckSequences() const;
  std::string CheckUnused(int64_t lse_rows) const;
  std::string CheckRow(int32_t sequence, int32_t query, int32_t head, int64_t lse_row) const;
  SegmentRows SegmentAt(int32_t sequence, int32_t segment) const;
  int64_t LseBegin(int32_t sequence) const;

  BatchOptions options_;
  std::vector<SequenceLengths> lengths_;
  std::mt19937 random_;
  ScheduleShape shape_{};
  std::vector<SegmentRows> rows_;
  std::vector<Source> sources_;
  std::vector<std::unique_ptr<GpuMemory>> memory_;
  GpuMemory* schedule_ = nullptr;
  GpuMemory* device_rows_ = nullptr;
  GpuMemory* device_count_ = nullptr;
  GpuMemory* counters_ = nullptr;
  GpuMemory* device_lse_ = nullptr;
  std::vector<float> lse_;
  int32_t lse_rows_ = 0;
};

}  // namespace segue::kernels
