// A plan of attention that outlives the lengths it serves.
//
// A plan fixes what a captured graph fixes: heads, capacities, which tensors there are, the back
// end. Lengths come later and may change between calls and between replays: from the host
// (SetLengths) or out of device memory (Refresh, once a step). Run, once a layer, reads them from
// the workspace. All calls enqueue on the caller's stream and never wait for it (but ReadReport);
// SetLengths waits for an upload of its own when it is four of them ahead of the GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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

// What a plan depends on of a GPU.
struct Gpu {
  int32_t compute_capability = 0;  // 10 x major + minor: 90 on an H200
  int32_t multiprocessors = 0;     // 132 on an H200
};

// The calling thread's current device. Error (kUnsupported): this build has no CUDA, or there is no
// driver or device; each says so.
Result<Gpu> CurrentGpu();

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
  // Whether lengths will come out of device memory (Refresh); back ends that need them on the host
  // refuse. Lengths from the host (SetLengths) serve in either case.
  bool device_lengths = false;
  bool wants_lse = false;
  // The only back end to consider ("sm90", "cudnn", "cuda", "cpu", "ref"); empty: the first that
  // accepts.
  std::string backend;
  // Back ends that the model admits; empty: all. A `backend` outside is an error that says so.
  std::vector<std::string> admitted;
  // kCuda: the GPU to plan for; absent: CurrentGpu(). A plan for a GPU that is not there can be
  // looked at (Work, ToString) like any other; its calls on a workspace fail.
  std::optional<Gpu> gpu;
  // kCpu: threads to run on, the caller's among them; 0: one per core.
  int32_t threads = 0;
};

struct BackendChoice {
  std::string backend;
  std::string reason;  // why it was passed over; empty for the one chosen
};

// What the device found wrong with lengths it was given; such a batch is not computed at all and
// its outputs stay unwritten.
struct LengthsReport {
  int32_t error = 0;        // 0: none
  int32_t sequence = 0;     // the first one concerned; 0 where it is the batch as a whole
  std::string description;  // empty: none
};

// Query rows of one head of one sequence, taken by one worker at once.
struct WorkTile {
  int32_t sequence = 0;
  int32_t head = 0;         // query head
  int64_t query_begin = 0;  // counted through the sequence's segments
  int32_t query_rows = 0;
  int32_t key_tiles = 0;  // how many times `key_rows` keys it visits
};

struct WorkerLoad {
  int64_t tiles = 0;
  int64_t key_tiles = 0;
};

// How a batch is cut into tiles, in the order in which they are taken.
struct WorkList {
  int32_t query_rows = 0;  // of a whole tile
  int32_t key_rows = 0;    // of a tile of keys
  // Whether a worker takes the next tile when it has done one, or every workers'th from its own.
  bool dynamic = false;
  int64_t halves = 0;  // tiles at the end that are halves, so that no worker idles long
  std::vector<WorkTile> tiles;
  // What each worker (a CTA; a thread) takes. Where order is dynamic, an estimate: a tile takes as
  // long as the number of keys it visits.
  std::vector<WorkerLoad> workers;
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

  // As given, with max_query_rows and gpu filled in.
  const PlanSettings& settings() const;
  const std::string& backend() const;
  // Every back end in order, with the reasons against those not chosen.
  const std::vector<BackendChoice>& choices() const;

  // Bytes of workspace, aligned to 256, in the memory of settings().place; 0 is possible.
  int64_t workspace_bytes() const;
  // Zeroes what must be zero before the first call with this workspace, and allocates what uploads
  // need; the other calls take prepared workspaces only. Errors: a stream that is being captured.
  Status Prepare(void* workspace, void* stream);

  // Lengths from the host: rows [sequences, max_segments]. Checked against the settings before
  // anything is enqueued; the upload goes through memory that the plan owns, so `rows` may be freed
  // at once. Nothing is enqueued when workspace, stream and lengths are those of the last call.
  // Errors: counts beyond the capacity; segments outside their tensors; negative rows; a stream
  // that is being captured, since a graph would replay the upload and not the call.
  // Query rows of different segments must not overlap: both would write the same outputs.
  Status SetLengths(std::span<const SegmentRows> rows, void* workspace, void* stream);
  // Lengths out of the memory of settings().place: `rows` as above, one count of sequences. For use
  // inside a capture. On the device mistakes are reported (ReadReport), not computed with. On kCpu
  // both are read by each Run and must live until the last; mistakes are Run's errors.
  // Errors: settings without device_lengths.
  Status Refresh(const SegmentRows* rows, const int32_t* sequences, void* workspace, void* stream);

  // o = softmax(scale q k^T) v of the batch whose lengths were set last. `tensors` are of
  // settings().tensors' sizes; pointers may differ from call to call. lse: natural logarithm,
  // float32 [q_heads, lse_stride], rows in the order of sequences and segments, or null; its
  // lse_stride is at least settings().max_query_rows. Errors: what the back end cannot take
  // (alignment, strides), by name, before any launch.
  Status Run(std::span<const TensorSet> tensors, float* lse, int64_t lse_stride, void* workspace,
             void* stream) const;

  // Waits for the stream, which must not be capturing. Errors: a CUDA failure.
  Result<LengthsReport> ReadReport(void* workspace, void* stream) const;

  // The work of lengths as SetLengths takes them, which stay as they are. Host only, pure. Errors:
  // those of SetLengths; a back end that keeps its order to itself.
  Result<WorkList> Work(std::span<const SegmentRows> rows) const;

  // For people: the settings, the choice and its reasons, and the lengths last set from the host
  // with their tiles.
  std::string ToString() const;

 private:
  struct State;
  explicit Plan(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Settings of a plan that serves this batch exactly: its counts, its tensors' rows. For one call:
// Plan::Create(PlanFor(...)), SetLengths(batch.rows), Run(batch.tensors).
PlanSettings PlanFor(const Batch& batch, const Options& options, Place place);

}  // namespace segue::attention
