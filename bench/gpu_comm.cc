#include "bench/gpu_comm.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/dtype.h"
#include "bench/gpu.h"
#include "bench/gpu_measure.h"
#include "comm/gpu_communicator.h"
#include "comm/group.h"
#include "comm/nccl.h"
#include "device/transfer.h"

namespace segue::bench {
namespace {

constexpr int64_t kElement = 2;  // bytes of a bfloat16
constexpr int64_t kRotatingBytes = int64_t{300} << 20;
constexpr double kLaunchUs = 5000.0;
constexpr double kGiga = 1e9;
constexpr uint64_t kSeed = 9000;

Error CaseError(const std::string& name, std::string got, std::string wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = "read benchmark suite",
          .argument = "case " + name,
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

Result<int64_t> IntegerOr(const Case& one, const std::string& key, int64_t fallback) {
  if (!one.values.contains(key)) return fallback;
  return one.Integer(key);
}

Error VerifyError(const std::string& name, std::string got, std::string wanted) {
  return {.code = ErrorCode::kInternal,
          .operation = "verify sums",
          .argument = "case " + name,
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

using Buffers = std::vector<GpuBuffer>;

// What one rank has, on its GPU.
struct RankState {
  std::unique_ptr<GpuStream> stream;
  Buffers partials;  // NCCL's: ours lie in the group's arena
  Buffers sums;      // one a call of a rotation; the norm's y
  Buffers residuals;
  Buffers tables;
  GpuContender ours, peer;
  std::vector<uint16_t> wanted;  // of a sum
  GpuProgram our_program, peer_program;
  GpuComparison comparison;
};

std::vector<int> FirstGpus(int64_t count) {
  std::vector<int> devices(static_cast<size_t>(count));
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

// A group of GPUs and its threads.
struct Ranks {
  explicit Ranks(comm::Group made) : group(std::move(made)) {}

  static Result<std::unique_ptr<Ranks>> Create(const std::vector<int>& devices) {
    SEGUE_ASSIGN_OR_RETURN(comm::Group group, comm::Group::OnGpus(devices));
    auto ranks = std::make_unique<Ranks>(std::move(group));
    SEGUE_ASSIGN_OR_RETURN(ranks->threads, comm::RankThreads::Start(ranks->group));
    ranks->states.resize(devices.size());
    return ranks;
  }

  // body(state, rank) on each rank's thread.
  template <typename Body>
  Status Run(const Body& body) {
    return threads->Run(
        [&](int rank) -> Status { return body(states[static_cast<size_t>(rank)], rank); });
  }

  const comm::GpuCommunicator& communicator(int rank) const {
    return static_cast<const comm::GpuCommunicator&>(group.rank(rank));
  }

  comm::Group group;
  std::vector<RankState> states;
  std::unique_ptr<comm::RankThreads> threads;
};

int64_t Rotation(int64_t bytes) {
  // Even: a group's two buffers alternate.
  return std::clamp<int64_t>(kRotatingBytes / bytes, 2, 64) / 2 * 2;
}

Status AllocateMany(Buffers* buffers, int64_t count, int64_t bytes) {
  for (int64_t i = 0; i < count; ++i) {
    SEGUE_ASSIGN_OR_RETURN(GpuBuffer buffer, GpuBuffer::Allocate(bytes));
    buffers->push_back(std::move(buffer));
  }
  return {};
}

Result<std::vector<uint16_t>> ReadAll(const GpuBuffer& buffer) {
  std::vector<uint16_t> values(static_cast<size_t>(buffer.bytes() / kElement));
  SEGUE_RETURN_IF_ERROR(SynchronizeGpu());
  SEGUE_RETURN_IF_ERROR(Download(values.data(), buffer.data(), buffer.bytes()));
  return values;
}

// As many calls in a launch on every rank, whatever each would measure.
Status RecordInStep(const GpuContender& contender, double guess_us, const GpuStream& stream,
                    GpuProgram* program) {
  const auto rounds =
      static_cast<int64_t>(kLaunchUs / (guess_us * static_cast<double>(contender.rotation)));
  const int64_t calls = std::max<int64_t>(rounds, 1) * contender.rotation;
  SEGUE_ASSIGN_OR_RETURN(*program, RecordCalls(contender, calls, stream));
  program->call_us = guess_us;
  return {};
}

// Records and times; the first rank's times.
Result<GpuComparison> MeasureInStep(Ranks& ranks, double guess_us, const MeasureOptions& options) {
  const auto record = [&](RankState& state, int) -> Status {
    SEGUE_RETURN_IF_ERROR(RecordInStep(state.ours, guess_us, *state.stream, &state.our_program));
    if (!state.peer.enqueue) return {};
    return RecordInStep(state.peer, guess_us, *state.stream, &state.peer_program);
  };
  SEGUE_RETURN_IF_ERROR(ranks.Run(record));
  const auto estimate = [&](RankState& state, int) -> Status {
    SEGUE_ASSIGN_OR_RETURN(state.our_program.call_us,
                           TimeBriefly(state.our_program, 0, *state.stream));
    if (!state.peer.enqueue) return {};
    SEGUE_ASSIGN_OR_RETURN(state.peer_program.call_us,
                           TimeBriefly(state.peer_program, 0, *state.stream));
    return {};
  };
  SEGUE_RETURN_IF_ERROR(ranks.Run(estimate));
  // What follows from an estimate, the number of launches, has to be the same everywhere.
  for (RankState& state : ranks.states) {
    state.our_program.call_us = ranks.states[0].our_program.call_us;
    state.peer_program.call_us = ranks.states[0].peer_program.call_us;
  }
  SEGUE_RETURN_IF_ERROR(ranks.Run([&](RankState& state, int) -> Status {
    const GpuProgram* peer = state.peer.enqueue ? &state.peer_program : nullptr;
    SEGUE_ASSIGN_OR_RETURN(state.comparison,
                           MeasureOnGpu(state.our_program, peer, options, *state.stream));
    return {};
  }));
  for (int rank = 0; rank < ranks.group.size(); ++rank) {
    SEGUE_RETURN_IF_ERROR(ranks.group.rank(rank).health());
  }
  return ranks.states[0].comparison;
}

double GuessUs(int64_t bytes) { return 10.0 + static_cast<double>(bytes) / 300e3; }

// Both of the arena's buffers, so that every call sums the same.
Status FillArena(const comm::Communicator& communicator, Span<const MatrixView> sums, uint64_t seed,
                 const GpuStream& stream) {
  const kernels::Context context = {.stream = Stream::Cuda(stream.get())};
  for (int call = 0; call < 2; ++call) {
    std::vector<comm::SumPart> parts;
    parts.reserve(sums.size());
    for (const MatrixView& sum : sums) parts.push_back({.partial = {}, .sum = sum});
    communicator.PlacePartials(parts);
    for (size_t i = 0; i < parts.size(); ++i) {
      const MatrixView& partial = parts[i].partial;
      SEGUE_RETURN_IF_ERROR(
          FillNormal(partial.data, partial.rows * partial.cols, seed + i, stream));
    }
    SEGUE_RETURN_IF_ERROR(communicator.AllReduceSum(parts, context));
  }
  return SynchronizeGpu();
}

struct SumCase {
  int64_t bytes = 0;
  int64_t ranks = 2;
  kernels::ReduceTuning tuning;
};

Result<SumCase> ReadSumCase(const Case& one) {
  SumCase result;
  SEGUE_ASSIGN_OR_RETURN(const int64_t kib, one.Integer("kib"));
  SEGUE_ASSIGN_OR_RETURN(result.ranks, IntegerOr(one, "ranks", 2));
  SEGUE_ASSIGN_OR_RETURN(const int64_t ctas, IntegerOr(one, "ctas", 0));
  SEGUE_ASSIGN_OR_RETURN(const int64_t threads, IntegerOr(one, "threads", result.tuning.threads));
  SEGUE_ASSIGN_OR_RETURN(const int64_t unroll, IntegerOr(one, "unroll", result.tuning.unroll));
  if (kib < 1 || kib > 32768)
    return CaseError(one.name, std::to_string(kib) + " KiB", "1 to 32768");
  if (result.ranks < 2 || result.ranks > comm::kMaxRanks) {
    return CaseError(one.name, std::to_string(result.ranks) + " ranks",
                     "2 to " + std::to_string(comm::kMaxRanks));
  }
  if (ctas < 0 || ctas > kernels::kMaxReduceCtas || threads < 32 || threads > 512 ||
      threads % 32 != 0 || (unroll != 1 && unroll != 2 && unroll != 4)) {
    return CaseError(one.name,
                     "ctas=" + std::to_string(ctas) + " threads=" + std::to_string(threads) +
                         " unroll=" + std::to_string(unroll),
                     "ctas up to 1024, threads 32, 64, ... 512, unroll 1, 2 or 4");
  }
  result.bytes = kib << 10;
  result.tuning = {.ctas = static_cast<int32_t>(ctas),
                   .threads = static_cast<int32_t>(threads),
                   .unroll = static_cast<int32_t>(unroll)};
  return result;
}

// The definition: in float32 from rank 0 upward, rounded once.
Result<std::vector<uint16_t>> WantedSum(const SumCase& c, const GpuStream& stream) {
  std::vector<float> sums(static_cast<size_t>(c.bytes / kElement));
  SEGUE_ASSIGN_OR_RETURN(const GpuBuffer buffer, GpuBuffer::Allocate(c.bytes));
  for (int64_t rank = 0; rank < c.ranks; ++rank) {
    SEGUE_RETURN_IF_ERROR(
        FillNormal(buffer.data(), c.bytes / kElement, kSeed + static_cast<uint64_t>(rank), stream));
    SEGUE_ASSIGN_OR_RETURN(const std::vector<uint16_t> values, ReadAll(buffer));
    for (size_t i = 0; i < sums.size(); ++i) {
      const float value = BF16ToFloat(values[i]);
      sums[i] = rank == 0 ? value : sums[i] + value;
    }
  }
  std::vector<uint16_t> wanted(sums.size());
  std::transform(sums.begin(), sums.end(), wanted.begin(), FloatToBF16);
  return wanted;
}

MatrixView LineOf(const GpuBuffer& buffer) {
  return ContiguousMatrix(buffer.data(), DType::kBF16, 1, buffer.bytes() / kElement);
}

// One rank's memory and calls; nothing waits for another rank here, so that every rank may
// allocate. `nccl` may be null.
Status PrepareSum(const SumCase& c, const comm::GpuCommunicator& communicator, comm::Nccl* nccl,
                  RankState* state) {
  const int rank = communicator.rank();
  SEGUE_ASSIGN_OR_RETURN(GpuStream stream, GpuStream::Create());
  state->stream = std::make_unique<GpuStream>(std::move(stream));
  SEGUE_RETURN_IF_ERROR(communicator.SetTuning(c.tuning));
  const int64_t rotation = Rotation(c.bytes);
  SEGUE_RETURN_IF_ERROR(AllocateMany(&state->sums, rotation, c.bytes));
  const uint64_t seed = kSeed + static_cast<uint64_t>(rank);
  SEGUE_ASSIGN_OR_RETURN(state->wanted, WantedSum(c, *state->stream));
  state->ours = {
      .name = "segue",
      .version = "",
      .rotation = rotation,
      .enqueue = [state, &communicator](void* cuda_stream, int64_t call) -> Status {
        comm::SumPart part = {.partial = {}, .sum = LineOf(state->sums[static_cast<size_t>(call)])};
        communicator.PlacePartials({&part, 1});
        return communicator.AllReduceSum({&part, 1}, {.stream = Stream::Cuda(cuda_stream)});
      }};
  if (nccl == nullptr) return {};
  SEGUE_RETURN_IF_ERROR(AllocateMany(&state->partials, 2, c.bytes));
  for (const GpuBuffer& partial : state->partials) {
    SEGUE_RETURN_IF_ERROR(FillNormal(partial.data(), c.bytes / kElement, seed, *state->stream));
  }
  state->peer = {.name = "NCCL",
                 .version = comm::NcclVersion(),
                 .rotation = rotation,
                 .enqueue = [state, nccl, rank](void* cuda_stream, int64_t call) -> Status {
                   const GpuBuffer& to = state->sums[static_cast<size_t>(call)];
                   const comm::Nccl::Message message = {
                       .from = state->partials[static_cast<size_t>(call % 2)].data(),
                       .to = to.data(),
                       .count = to.bytes() / kElement};
                   return nccl->AllReduce(rank, {&message, 1}, DType::kBF16, cuda_stream);
                 }};
  return SynchronizeGpu();
}

// Two calls, so that the group's buffers stand as they did.
Status VerifySum(const SumCase& c, const std::string& name, const GpuContender& contender,
                 const RankState& state) {
  if (!contender.enqueue) return {};
  for (int64_t call = 0; call < 2; ++call) {
    const GpuBuffer& sum = state.sums[static_cast<size_t>(call)];
    SEGUE_RETURN_IF_ERROR(FillBytes(sum.data(), 0xff, c.bytes));
    SEGUE_RETURN_IF_ERROR(SynchronizeGpu());
    SEGUE_RETURN_IF_ERROR(contender.enqueue(state.stream->get(), call));
    SEGUE_ASSIGN_OR_RETURN(const std::vector<uint16_t> got, ReadAll(sum));
    if (got != state.wanted) {
      return VerifyError(name, "other bytes from " + contender.name,
                         "the sum in float32, rounded once");
    }
  }
  return {};
}

}  // namespace

Result<std::vector<Row>> BenchGpuSum(const Case& one, const SuiteOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const SumCase c, ReadSumCase(one));
  // Outlives the graphs.
  comm::Nccl nccl(FirstGpus(c.ranks));
  SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<Ranks> ranks, Ranks::Create(FirstGpus(c.ranks)));
  if (!ranks->group.peer_access_refusal().empty()) {
    return VerifyError(one.name, ranks->group.peer_access_refusal(),
                       "GPUs that reach each other's memory");
  }
  const Status loaded = nccl.Start();
  SEGUE_RETURN_IF_ERROR(ranks->Run([&](RankState& state, int rank) {
    return PrepareSum(c, ranks->communicator(rank), loaded.ok() ? &nccl : nullptr, &state);
  }));
  const auto verify = [&](RankState& state, int rank) -> Status {
    const MatrixView sum = LineOf(state.sums[0]);
    SEGUE_RETURN_IF_ERROR(FillArena(ranks->communicator(rank), {&sum, 1},
                                    kSeed + static_cast<uint64_t>(rank), *state.stream));
    SEGUE_RETURN_IF_ERROR(VerifySum(c, one.name, state.ours, state));
    // NCCL's order of three and more is its own.
    if (c.ranks > 2) return {};
    return VerifySum(c, one.name, state.peer, state);
  };
  SEGUE_RETURN_IF_ERROR(ranks->Run(verify));
  SEGUE_ASSIGN_OR_RETURN(const GpuComparison comparison,
                         MeasureInStep(*ranks, GuessUs(c.bytes), options.measure));
  Row row = {.case_name = one.name,
             .variant = c.ranks == 2 ? "one_shot" : "two_shot",
             .unit = "GB/s",
             .peer = ranks->states[0].peer.name,
             .peer_version = ranks->states[0].peer.version,
             .note = loaded.ok() ? "" : loaded.error().Message()};
  return RowsOf(comparison, static_cast<double>(c.bytes), kGiga, std::move(row));
}

namespace {

struct NormCase {
  int64_t rows[comm::kMaxSumParts] = {};
  int64_t width = 0;

  int64_t bytes() const { return (rows[0] + rows[1]) * width * kElement; }
};

Result<NormCase> ReadNormCase(const Case& one) {
  NormCase result;
  SEGUE_ASSIGN_OR_RETURN(result.rows[0], one.Integer("image"));
  SEGUE_ASSIGN_OR_RETURN(result.rows[1], one.Integer("text"));
  SEGUE_ASSIGN_OR_RETURN(result.width, one.Integer("width"));
  if (result.rows[0] < 1 || result.rows[1] < 0 || result.width < 8 || result.width % 8 != 0) {
    return CaseError(one.name, "no rows or no columns",
                     "image=<rows> text=<rows> width=<columns, a multiple of 8>");
  }
  return result;
}

// The rows of stream `i` in a buffer of both streams' rows.
MatrixView StreamRows(const NormCase& c, const GpuBuffer& buffer, size_t i) {
  return ContiguousMatrix(
      static_cast<uint16_t*>(buffer.data()) + (i == 0 ? 0 : c.rows[0] * c.width), DType::kBF16,
      c.rows[i], c.width);
}

using SumNorm = std::function<Status(const kernels::ModulatedNormParams&, const kernels::Context&)>;

// One call on set `call` of a rank's buffers.
Status EnqueueNorm(const NormCase& c, const comm::Communicator& communicator,
                   const RankState& state, int64_t call, const SumNorm& run, void* cuda_stream) {
  const auto set = static_cast<size_t>(call);
  const auto* table = static_cast<const uint16_t*>(state.tables[0].data());
  const auto slice = [&](int64_t part) {
    return kernels::RowTable{.data = table + part * c.width, .rows = 1, .stride = 3 * c.width};
  };
  std::vector<comm::SumPart> parts(comm::kMaxSumParts);
  for (size_t i = 0; i < parts.size(); ++i) parts[i].sum = StreamRows(c, state.sums[set], i);
  communicator.PlacePartials(parts);
  std::vector<kernels::ModulatedNormStream> streams(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    streams[i] = {.branch = parts[i].partial,
                  .gate = slice(0),
                  .h = StreamRows(c, state.residuals[set], i),
                  .scale = slice(1),
                  .shift = slice(2),
                  .y = parts[i].sum};
  }
  return run({.streams = streams, .rounding = kernels::Rounding::kBF16},
             {.stream = Stream::Cuda(cuda_stream)});
}

Status PrepareNorm(const NormCase& c, const comm::GpuCommunicator& communicator, RankState* state) {
  SEGUE_ASSIGN_OR_RETURN(GpuStream stream, GpuStream::Create());
  state->stream = std::make_unique<GpuStream>(std::move(stream));
  const int64_t rotation = Rotation(2 * c.bytes());
  SEGUE_RETURN_IF_ERROR(AllocateMany(&state->sums, rotation, c.bytes()));
  SEGUE_RETURN_IF_ERROR(AllocateMany(&state->residuals, rotation, c.bytes()));
  SEGUE_RETURN_IF_ERROR(AllocateMany(&state->tables, 1, 3 * c.width * kElement));
  SEGUE_RETURN_IF_ERROR(FillNormal(state->tables[0].data(), 3 * c.width, kSeed, *state->stream));
  for (const GpuBuffer& h : state->residuals) {
    SEGUE_RETURN_IF_ERROR(FillNormal(h.data(), c.bytes() / kElement, kSeed + 1, *state->stream));
  }
  const auto contender = [&](const char* name, const SumNorm& run) {
    return GpuContender{.name = name,
                        .version = "",
                        .rotation = rotation,
                        .enqueue = [&communicator, c, state, run](void* to, int64_t call) {
                          return EnqueueNorm(c, communicator, *state, call, run, to);
                        }};
  };
  state->ours = contender("segue", [&communicator](const auto& params, const auto& context) {
    return communicator.SumAndModulatedNorm(params, context);
  });
  state->peer =
      contender("segue, two kernels", [&communicator](const auto& params, const auto& context) {
        return communicator.comm::Communicator::SumAndModulatedNorm(params, context);
      });
  return {};
}

// Ours on the first set, the chain on the second, whose residuals are the same.
Status VerifyNorm(const NormCase& c, const comm::Communicator& communicator,
                  const std::string& name, const RankState& state) {
  const MatrixView sums[] = {StreamRows(c, state.sums[0], 0), StreamRows(c, state.sums[0], 1)};
  SEGUE_RETURN_IF_ERROR(FillArena(communicator, sums,
                                  kSeed + 10 * (1 + static_cast<uint64_t>(communicator.rank())),
                                  *state.stream));
  SEGUE_RETURN_IF_ERROR(state.ours.enqueue(state.stream->get(), 0));
  SEGUE_RETURN_IF_ERROR(state.peer.enqueue(state.stream->get(), 1));
  for (const Buffers* buffers : {&state.residuals, &state.sums}) {
    SEGUE_ASSIGN_OR_RETURN(const std::vector<uint16_t> fused, ReadAll((*buffers)[0]));
    SEGUE_ASSIGN_OR_RETURN(const std::vector<uint16_t> chain, ReadAll((*buffers)[1]));
    if (fused != chain) {
      return VerifyError(name, "other bytes from the fused kernel", "those of the two kernels");
    }
    for (const uint16_t bits : fused) {
      if ((bits & 0x7f80) == 0x7f80) return VerifyError(name, "no numbers", "finite values");
    }
  }
  return {};
}

}  // namespace

Result<std::vector<Row>> BenchGpuSumNorm(const Case& one, const SuiteOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const NormCase c, ReadNormCase(one));
  SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<Ranks> ranks, Ranks::Create(FirstGpus(2)));
  if (!ranks->group.peer_access_refusal().empty()) {
    return VerifyError(one.name, ranks->group.peer_access_refusal(),
                       "GPUs that reach each other's memory");
  }
  SEGUE_RETURN_IF_ERROR(ranks->Run([&](RankState& state, int rank) {
    return PrepareNorm(c, ranks->communicator(rank), &state);
  }));
  SEGUE_RETURN_IF_ERROR(ranks->Run([&](RankState& state, int rank) {
    return VerifyNorm(c, ranks->communicator(rank), one.name, state);
  }));
  SEGUE_ASSIGN_OR_RETURN(const GpuComparison comparison,
                         MeasureInStep(*ranks, GuessUs(c.bytes()), options.measure));
  Row row = {.case_name = one.name,
             .variant = "fused",
             .unit = "GB/s",
             .peer = ranks->states[0].peer.name};
  return RowsOf(comparison, static_cast<double>(c.bytes()), kGiga, std::move(row));
}

}  // namespace segue::bench
