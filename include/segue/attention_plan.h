// A plan of attention that outlives the lengths it serves.
//
// A plan fixes what a captured graph fixes: heads, capacities, which tensors there are, the back
// end. Lengths come later and may change between calls and between replays: from the host
// (SetLengths) or out of device memory (Refresh, once a step). Run, once a layer, reads them from
// the workspace. All calls enqueue on the caller's stream and never wait for it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "segue/attention.h"
#include "segue/status.h"

namespace segue::attention {

enum class Place : uint8_t { kCpu, kCuda };

struct TensorRows {
  int32_t q_rows = 0;
  int32_t kv_rows = 0;
};

struct PlanSettings {
  Options options;
  Place place = Place::kCpu;
  // The largest batch: sequences, and segments of one sequence. Metadata has this stride for good.
  int32_t max_sequences = 0;
  int32_t max_segments = 0;
  // Rows that each tensor set has; segments of every batch stay inside.
  std::vector<TensorRows> tensors;
  // Query rows of a batch, all sequences together; 0: the tensors' sum. Bounds the list of work
  // and the rows of the log-sum-exp.
  int64_t max_query_rows = 0;
  // Whether lengths will come out of device memory; back ends that need them on the host refuse.
  bool device_lengths = false;
  bool wants_lse = false;
  // The only back end to consider ("sm90", "cudnn", "cpu", "ref"); empty: the first that accepts.
  std::string backend;
  // Back ends that the model admits; empty: all. A `backend` outside is an error that says so.
  std::vector<std::string> admitted;
};

struct BackendChoice {
  std::string backend;
  std::string reason;  // why it was passed over; empty for the one chosen
};

// What the device found wrong with lengths it was given; such a batch is not computed at all and
// its outputs stay unwritten.
struct LengthsReport {
  int32_t error = 0;        // 0: none
  int32_t sequence = 0;     // the first one concerned
  std::string description;  // empty: none
};

// Const after creation but for the lengths: one plan serves one batch at a time. Two plans, each
// with a workspace of its own, may be in flight together. On kCpu `stream` is ignored and calls
// return when done.
class Plan {
 public:
  // Host only, cheap, pure. Errors: settings that contradict themselves; a back end that does not
  // exist, is not admitted or cannot serve them (with its reason); none that can (with each one's).
  static Result<Plan> Create(const PlanSettings& settings);
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  const PlanSettings& settings() const;
  const std::string& backend() const;
  // Every back end in order, up to the chosen one and with the reasons against the others.
  const std::vector<BackendChoice>& choices() const;

  // Bytes of workspace, aligned to 256, in the memory of settings().place; 0 is possible.
  int64_t workspace_bytes() const;
  // Zeroes what must be zero before the first call with this workspace. Not captured.
  Status Prepare(void* workspace, void* stream) const;

  // Lengths from the host: rows [sequences, max_segments]. Checked against the settings before
  // anything is enqueued; the upload goes through memory that the plan owns, so `rows` may be freed
  // at once. Not for use inside a capture.
  // Errors: counts beyond the capacity; segments outside their tensors; negative rows.
  Status SetLengths(std::span<const SegmentRows> rows, void* workspace, void* stream);
  // Lengths out of the memory of settings().place: `rows` as above, one count of sequences. For use
  // inside a capture. On the device mistakes are reported (ReadReport), not computed with.
  Status Refresh(const SegmentRows* rows, const int32_t* sequences, void* workspace, void* stream);

  // o = softmax(scale q k^T) v of the batch whose lengths were set last. `tensors` are of
  // settings().tensors' sizes; pointers may differ from call to call. lse: natural logarithm,
  // float32 [q_heads, lse_stride], rows in the order of sequences and segments, or null. Errors:
  // what the back end cannot take (alignment, strides), by name, before any launch.
  Status Run(std::span<const TensorSet> tensors, float* lse, int64_t lse_stride, void* workspace,
             void* stream) const;

  // Waits for the stream. Errors: a CUDA failure.
  Result<LengthsReport> ReadReport(void* workspace, void* stream) const;

  // For people: the settings, the choice and its reasons, and the tiles of the lengths last set
  // from the host with their order.
  std::string ToString() const;

 private:
  struct State;
  explicit Plan(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A plan for one call: creates it, sets the batch's lengths and runs it. `workspace` as
// Plan::workspace_bytes of PlanFor(batch, ...).
PlanSettings PlanFor(const Batch& batch, const Options& options, Place place);

}  // namespace segue::attention
