#include "comm/gpu_communicator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "device/gpu.h"
#include "device/transfer.h"
#include "kernels/cuda/rows/rows.h"

namespace segue::comm {
namespace {

constexpr int64_t kVector = 16;      // bytes that kernels move at once
constexpr int64_t kAlignment = 256;  // of buffers, and of parts in them
constexpr int kBuffers = 2;

int64_t RoundedUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t BytesOf(const MatrixView& view) {
  return view.rows * view.cols * static_cast<int64_t>(SizeOf(view.dtype));
}
bool IsContiguous(const MatrixView& view) { return view.rows <= 1 || view.stride == view.cols; }

const char* RejectsOneShot(const GpuCommunicator::Sum& sum, const kernels::Context&) {
  return sum.self->size() == 2 ? sum.self->RejectsOwn(sum) : "serves two ranks";
}
const char* RejectsTwoShot(const GpuCommunicator::Sum& sum, const kernels::Context&) {
  return sum.self->size() > 2 ? sum.self->RejectsOwn(sum) : "serves three ranks and more";
}
Status RunOwn(const GpuCommunicator::Sum& sum, const kernels::Context& context) {
  return sum.self->RunOwn(sum, context);
}
const char* RejectsNccl(const GpuCommunicator::Sum& sum, const kernels::Context& context) {
  return sum.self->RejectsNccl(sum, context);
}
Status RunNccl(const GpuCommunicator::Sum& sum, const kernels::Context& context) {
  return sum.self->RunNccl(sum, context);
}

constexpr kernels::Kernel<GpuCommunicator::Sum> kSums[] = {
    {"one_shot", RejectsOneShot, RunOwn},
    {"two_shot", RejectsTwoShot, RunOwn},
    {"nccl", RejectsNccl, RunNccl},
};

const char* RejectsFused(const GpuCommunicator::SumNorm& sum, const kernels::Context& context) {
  return sum.self->RejectsFused(sum, context);
}
Status RunFused(const GpuCommunicator::SumNorm& sum, const kernels::Context& context) {
  return sum.self->RunFused(sum, context);
}
const char* AcceptsAll(const GpuCommunicator::SumNorm&, const kernels::Context&) { return nullptr; }
Status RunComposed(const GpuCommunicator::SumNorm& sum, const kernels::Context& context) {
  return sum.self->RunComposed(sum, context);
}

constexpr kernels::Kernel<GpuCommunicator::SumNorm> kSumNorms[] = {
    {"fused", RejectsFused, RunFused},
    {"composed", AcceptsAll, RunComposed, kernels::kReference},
};

Error RefusedStream(int rank) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = "all-reduce on rank " + std::to_string(rank),
          .argument = "stream",
          .got = "a second stream",
          .wanted = "the stream of the first call; a group of its own for another one"};
}

}  // namespace

int64_t GpuCommunicator::ControlBytes() { return RoundedUp(sizeof(kernels::PeerControl)); }

int64_t GpuCommunicator::ArenaBytes(int ranks, const GroupOptions& options) {
  const int64_t slack = static_cast<int64_t>(kMaxSumParts) * kAlignment;
  const int64_t buffer = RoundedUp(options.workspace_bytes) + slack;
  const int64_t slices = ranks > 2 ? RoundedUp(options.workspace_bytes / ranks) + slack : 0;
  return ControlBytes() + kBuffers * buffer + slices;
}

GpuCommunicator::GpuCommunicator(std::unique_ptr<Transport> transport,
                                 std::shared_ptr<GpuGroupState> state,
                                 kernels::PeerFailure* failure)
    : transport_(std::move(transport)), state_(std::move(state)), failure_(failure) {
  group_.rank = transport_->rank();
  group_.ranks = transport_->size();
  for (int peer = 0; peer < size(); ++peer) {
    group_.arena[peer] = static_cast<char*>(transport_->At(peer, 0));
  }
  group_.reduced_offset = ControlBytes() + kBuffers * BufferBytes();
  group_.time_limit_ns = static_cast<uint64_t>(state_->options.time_limit.count()) * 1'000'000u;
  group_.failure = failure_;
  tuning_.ctas = size() == 2 ? state_->room.one_shot : state_->room.two_shot;
}

int64_t GpuCommunicator::BufferBytes() const {
  return RoundedUp(state_->options.workspace_bytes) +
         static_cast<int64_t>(kMaxSumParts) * kAlignment;
}

int64_t GpuCommunicator::BufferOffset() const { return ControlBytes() + buffer_ * BufferBytes(); }

void GpuCommunicator::PlacePartials(Span<SumPart> parts) const {
  for (SumPart& part : parts) part.partial = part.sum;
  if (size() == 1 || RejectsOwn({this, {parts.data(), parts.size()}}) != nullptr) return;
  const std::lock_guard lock(mutex_);
  int64_t offset = BufferOffset();
  for (SumPart& part : parts) {
    part.partial = ContiguousMatrix(transport_->At(rank(), offset), part.sum.dtype, part.sum.rows,
                                    part.sum.cols);
    offset += RoundedUp(BytesOf(part.sum));
  }
}

Status GpuCommunicator::Enter(const kernels::Context& context) const {
  if (context.stream.device() != DeviceKind::kCuda) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = "all-reduce on rank " + std::to_string(rank()),
                 .argument = "stream",
                 .got = "a stream of the host",
                 .wanted = "one of the rank's GPU"};
  }
  SEGUE_RETURN_IF_ERROR(health());
  const std::lock_guard lock(mutex_);
  if (!stream_.has_value()) stream_ = context.stream.cuda_stream();
  return *stream_ == context.stream.cuda_stream() ? Status() : Status(RefusedStream(rank()));
}

Status GpuCommunicator::AllReduceSum(Span<const SumPart> parts,
                                     const kernels::Context& context) const {
  SEGUE_RETURN_IF_ERROR(CheckSumParts(parts));
  SEGUE_RETURN_IF_ERROR(Enter(context));
  if (size() == 1) return SingleRank().AllReduceSum(parts, context);
  // There is no plainer way to reach the peers.
  kernels::Context any = context;
  any.reference_only = false;
  return kernels::Dispatch<Sum>("all_reduce", kSums, {this, parts}, any);
}

const char* GpuCommunicator::RejectsOwn(const Sum& sum) const {
  if (!state_->peer_access_refusal.empty()) return "GPUs do not reach each other's memory";
  if (sum.parts.size() > kMaxSumParts) return "there are too many parts";
  if (SumBytes(sum.parts) > state_->options.workspace_bytes) {
    return "there are more bytes than the workspace has";
  }
  for (const SumPart& part : sum.parts) {
    if (BytesOf(part.sum) % kVector != 0) return "the size is no multiple of 16 bytes";
    if (reinterpret_cast<uintptr_t>(part.sum.data) % kVector != 0) {
      return "the sum is not aligned to 16 bytes";
    }
    if (!IsContiguous(part.sum)) return "rows of the sum lie apart";
  }
  return nullptr;
}

Result<int64_t> GpuCommunicator::Stage(const MatrixView& partial, int64_t* used,
                                       const Stream& stream) const {
  const int64_t offset = BufferOffset() + *used;
  *used += RoundedUp(BytesOf(partial));
  void* place = transport_->At(rank(), offset);
  if (partial.data == place && IsContiguous(partial)) return offset;
  const MatrixView to = ContiguousMatrix(place, partial.dtype, partial.rows, partial.cols);
  SEGUE_RETURN_IF_ERROR(CopyMatrix(to, partial, stream));
  return offset;
}

Status GpuCommunicator::RunOwn(const Sum& sum, const kernels::Context& context) const {
  const std::lock_guard lock(mutex_);
  kernels::AllReduceParams params = {.group = group_, .tuning = tuning_};
  int64_t used = 0;
  for (const SumPart& part : sum.parts) {
    kernels::AllReducePart& to = params.parts[params.part_count++];
    SEGUE_ASSIGN_OR_RETURN(to.offset, Stage(part.partial, &used, context.stream));
    to.sum = part.sum.data;
    to.bytes = BytesOf(part.sum);
    params.dtype = part.sum.dtype;
  }
  buffer_ = 1 - buffer_;
  return size() == 2 ? kernels::OneShotAllReduce(params, context)
                     : kernels::TwoShotAllReduce(params, context);
}

const char* GpuCommunicator::RejectsNccl(const Sum& sum, const kernels::Context& context) const {
  for (const SumPart& part : sum.parts) {
    if (!IsContiguous(part.sum) || !IsContiguous(part.partial)) return "rows lie apart";
  }
  if (!state_->nccl.started()) {
    const Result<bool> capturing = IsCapturing(context.stream.cuda_stream());
    if (!capturing || *capturing) return "it was not loaded before a graph was recorded";
  }
  const Status started = state_->nccl.Start();
  return started.ok() ? nullptr : kernels::Interned(started.error().Message());
}

Status GpuCommunicator::RunNccl(const Sum& sum, const kernels::Context& context) const {
  std::vector<Nccl::Message> messages;
  messages.reserve(sum.parts.size());
  for (const SumPart& part : sum.parts) {
    messages.push_back({part.partial.data, part.sum.data, part.sum.rows * part.sum.cols});
  }
  if (messages.empty()) return {};
  return state_->nccl.AllReduce(rank(), messages, sum.parts[0].sum.dtype,
                                context.stream.cuda_stream());
}

Status GpuCommunicator::SumAndModulatedNorm(const kernels::ModulatedNormParams& params,
                                            const kernels::Context& context) const {
  SEGUE_RETURN_IF_ERROR(kernels::CheckModulatedNorm(params, context));
  SEGUE_RETURN_IF_ERROR(Enter(context));
  return kernels::Dispatch<SumNorm>("sum_modulated_norm", kSumNorms, {this, &params}, context);
}

const char* GpuCommunicator::RejectsFused(const SumNorm& sum,
                                          const kernels::Context& context) const {
  if (size() != 2) return "serves two ranks";
  std::array<SumPart, kMaxSumParts> parts;
  size_t count = 0;
  for (const kernels::ModulatedNormStream& stream : sum.params->streams) {
    if (stream.branch.data == nullptr) return "a stream has no branch";
    parts[count++] = {.partial = stream.branch, .sum = stream.y};
  }
  if (const char* reason = RejectsOwn({this, {parts.data(), count}})) return reason;
  return kernels::cuda::RejectsModulatedNorm(*sum.params, context);
}

Status GpuCommunicator::RunFused(const SumNorm& sum, const kernels::Context& context) const {
  const std::lock_guard lock(mutex_);
  const auto& streams = sum.params->streams;
  const int32_t warps = streams.empty() ? 1 : kernels::SumNormWarps(streams[0].h.cols);
  kernels::SumNormParams params = {
      .group = group_, .norm = *sum.params, .ctas = state_->room.sum_norm[warps - 1]};
  int64_t used = 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    SEGUE_ASSIGN_OR_RETURN(params.offsets[i], Stage(streams[i].branch, &used, context.stream));
  }
  buffer_ = 1 - buffer_;
  return kernels::SumModulatedNorm(params, context);
}

Status GpuCommunicator::RunComposed(const SumNorm& sum, const kernels::Context& context) const {
  return Communicator::SumAndModulatedNorm(*sum.params, context);
}

Status GpuCommunicator::EndRun(const kernels::Context& context) const {
  {
    const std::lock_guard lock(mutex_);
    if (buffer_ == 0) return {};
  }
  SEGUE_RETURN_IF_ERROR(Enter(context));
  return RunOwn({this, {}}, context);
}

void GpuCommunicator::DropRun() const {
  // Counts of calls are the GPU's and grow when they run; the host keeps the buffer alone.
  const std::lock_guard lock(mutex_);
  buffer_ = 0;
}

Status GpuCommunicator::SetTuning(const kernels::ReduceTuning& tuning) const {
  SEGUE_ASSIGN_OR_RETURN(const kernels::ReduceRoom room, kernels::MaxReduceCtas(tuning.threads));
  const int32_t most = size() == 2 ? room.one_shot : room.two_shot;
  const std::lock_guard lock(mutex_);
  tuning_ = tuning;
  tuning_.ctas = tuning.ctas == 0 ? most : std::min(tuning.ctas, most);
  return {};
}

void GpuCommunicator::Fail(const Error& reason) const {
  {
    const std::lock_guard lock(mutex_);
    if (!error_.has_value()) error_ = reason;
  }
  if (state_->tell) state_->tell(static_cast<uint32_t>(rank()) + 1);
  state_->nccl.Abort();
}

Status GpuCommunicator::health() const {
  const std::lock_guard lock(mutex_);
  if (error_.has_value()) return *error_;
  const std::atomic_ref<uint32_t> state(failure_->state);
  if (state.load(std::memory_order_acquire) == 0) return {};
  const std::string blamed = "rank " + std::to_string(failure_->blamed);
  error_ = Error{
      .code = ErrorCode::kInternal,
      .operation = "all-reduce on rank " + std::to_string(rank()) + " of " + std::to_string(size()),
      .argument = "call " + std::to_string(failure_->call) + ", " +
                  std::to_string(failure_->bytes) + " bytes",
      .got = failure_->told != 0 ? "failure of " + blamed : "no " + blamed,
      .wanted = "every rank within " + std::to_string(state_->options.time_limit.count()) + " ms"};
  return *error_;
}

}  // namespace segue::comm
