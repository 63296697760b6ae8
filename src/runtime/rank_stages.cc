#include "runtime/rank_stages.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <utility>

#include "runtime/exceptions.h"

namespace segue::runtime {
namespace {

Error LayoutError(ErrorCode code, const char* option, std::string got, std::string wanted) {
  return {.code = code,
          .operation = "load model",
          .argument = option,
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

// What a rank needs of a request that rank 0 encodes.
std::unique_ptr<RequestState> CopyRequest(const RequestState& request) {
  auto copy = std::make_unique<RequestState>();
  copy->id = request.id;
  copy->settings = request.settings;
  copy->prompts = request.prompts;
  copy->given_latents = request.given_latents;
  copy->schedule = request.schedule;
  copy->quality = request.quality;
  return copy;
}

}  // namespace

Status CheckRankLayout(const RankLayout& layout) {
  if (layout.tensor < 1 || layout.tensor > comm::kMaxRanks) {
    return LayoutError(ErrorCode::kInvalidArgument, "tensor_parallel",
                       std::to_string(layout.tensor),
                       "1 to " + std::to_string(comm::kMaxRanks) + " ranks");
  }
  if (layout.splits_branches && layout.tensor > 1) {
    return LayoutError(ErrorCode::kUnsupported, "cfg_parallel",
                       "tensor_parallel " + std::to_string(layout.tensor) + " too",
                       "one of them: a rank has all of a branch, or a part of both");
  }
  return {};
}

template <typename Body>
Status RankStages::OnEach(const char* operation, const Body& body) {
  std::vector<Status> statuses(ranks_.size());
  SEGUE_RETURN_IF_ERROR(threads_->Run([&](int rank) -> Status {
    statuses[static_cast<size_t>(rank)] = WithoutExceptions(operation, [&] { return body(rank); });
    return {};
  }));
  for (Status& status : statuses) SEGUE_RETURN_IF_ERROR(std::move(status));
  return {};
}

Result<std::unique_ptr<RankStages>> RankStages::OnHost(const HostRanksSettings& settings) {
  SEGUE_RETURN_IF_ERROR(CheckRankLayout(settings.layout));
  const int ranks = settings.layout.ranks();
  SEGUE_ASSIGN_OR_RETURN(comm::Group group,
                         comm::Group::OnHost(ranks, {.time_limit = settings.time_limit}));
  std::unique_ptr<RankStages> stages(new RankStages(std::move(group), settings.time_limit));
  stages->ranks_.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    stages->ranks_.push_back(std::make_unique<Rank>(std::max(settings.threads / ranks, 1)));
  }
  SEGUE_ASSIGN_OR_RETURN(stages->threads_, comm::RankThreads::Start(stages->group_));
  SEGUE_RETURN_IF_ERROR(
      stages->OnEach("load model", [&](int rank) { return stages->LoadRank(rank, settings); }));
  return stages;
}

Result<std::unique_ptr<RankStages>> RankStages::OnGpus(const GpuRankSettings& settings,
                                                       const RankLayout& layout) {
  SEGUE_RETURN_IF_ERROR(CheckRankLayout(layout));
  if (layout.splits_branches) {
    return LayoutError(ErrorCode::kUnsupported, "cfg_parallel", "GPUs", "the CPU");
  }
  std::vector<int> devices(static_cast<size_t>(layout.ranks()));
  std::iota(devices.begin(), devices.end(), settings.device);
  SEGUE_ASSIGN_OR_RETURN(comm::Group group, comm::Group::OnGpus(devices));
  // How long ranks wait for one that allocates and chooses algorithms for a new shape.
  constexpr std::chrono::minutes kPreparation{5};
  std::unique_ptr<RankStages> stages(new RankStages(std::move(group), kPreparation));
  stages->ranks_.reserve(devices.size());
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    stages->ranks_.push_back(std::make_unique<Rank>(1));
  }
  SEGUE_ASSIGN_OR_RETURN(stages->threads_, comm::RankThreads::Start(stages->group_));
  SEGUE_RETURN_IF_ERROR(
      stages->OnEach("load model", [&](int rank) { return stages->LoadRank(rank, settings); }));
  return stages;
}

// Each rank's thread has its device current.
RankStages::~RankStages() {
  if (threads_ == nullptr) return;
  (void)threads_->Run([this](int rank) -> Status {
    ranks_[static_cast<size_t>(rank)].reset();
    return {};
  });
}

Status RankStages::LoadRank(int rank, const GpuRankSettings& settings) {
  Rank& own = *ranks_[static_cast<size_t>(rank)];
  GpuRankSettings of_rank = settings;
  EngineOptions options = *settings.options;
  // Told once: the ranks load alike.
  if (rank != 0) options.load_progress = nullptr;
  of_rank.options = &options;
  of_rank.communicator = &group_.rank(rank);
  of_rank.networks = rank == 0 ? model::Networks::kAll : model::Networks::kTransformer;
  of_rank.device = group_.device(rank);
  of_rank.memory = {};
  of_rank.host_pool = &own.pool;
  if (rank != 0) of_rank.context.kernels.log = nullptr;
  SEGUE_ASSIGN_OR_RETURN(own.gpu, LoadGpuRank(of_rank));
  own.pipeline = own.gpu->pipeline.get();
  own.pipeline->JoinRanks({.group = &group_.rank(rank), .meeting = &meeting_});
  return {};
}

Status RankStages::LoadRank(int rank, const HostRanksSettings& settings) {
  Rank& own = *ranks_[static_cast<size_t>(rank)];
  const bool splits = settings.layout.splits_branches;
  const comm::Communicator& tensor_ranks =
      splits ? static_cast<const comm::Communicator&>(alone_) : group_.rank(rank);
  own.store = model::WeightStore::Host(*settings.memory);
  SEGUE_ASSIGN_OR_RETURN(
      own.model,
      model::QwenImage::Load(*settings.checkpoint, tensor_ranks, *own.store,
                             rank == 0 ? model::Networks::kAll : model::Networks::kTransformer));
  SEGUE_RETURN_IF_ERROR(own.store->Allocate());
  model::ForwardContext context = settings.context;
  context.kernels.stream = Stream::Cpu(own.pool);
  if (rank != 0) context.kernels.log = nullptr;
  context.communicator = &tensor_ranks;
  own.host_pipeline = std::make_unique<HostPipeline>(*own.model, context, *settings.memory);
  own.pipeline = own.host_pipeline.get();
  own.pipeline->JoinRanks(
      {.group = &group_.rank(rank), .meeting = &meeting_, .splits_branches = splits});
  return {};
}

RequestState* RankStages::CopyOf(RequestState* request, int rank) const {
  if (rank == 0) return request;
  return ranks_[static_cast<size_t>(rank)]->copies.at(request->id).get();
}

void RankStages::Mount(RequestState& request) const { pipeline(0).Mount(request); }

Status RankStages::Encode(RequestState& request) {
  const auto start = std::chrono::steady_clock::now();
  SEGUE_RETURN_IF_ERROR(health());
  for (size_t rank = 1; rank < ranks_.size(); ++rank) {
    ranks_[rank]->copies[request.id] = CopyRequest(request);
  }
  Status encoded = OnEach("encode prompt", [&](int rank) {
    return rank == 0 ? pipeline(0).Encode(request) : pipeline(rank).Follow(*CopyOf(&request, rank));
  });
  // Nobody waits for another one so far.
  if (encoded.ok()) {
    encoded =
        threads_->Run([&](int rank) { return pipeline(rank).ShareText(*CopyOf(&request, rank)); });
    if (!encoded.ok()) meeting_.Abandon(encoded.error());
  }
  if (!encoded.ok()) Forget(request);
  request.times.encode_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return encoded;
}

void RankStages::Denoise(Span<RequestState* const> requests) {
  Status ran = OnEach("denoise", [&](int rank) -> Status {
    std::vector<RequestState*> copies;
    copies.reserve(requests.size());
    for (RequestState* request : requests) copies.push_back(CopyOf(request, rank));
    pipeline(rank).Denoise(copies);
    return {};
  });
  const Status healthy = health();
  if (ran.ok()) ran = healthy;
  for (RequestState* request : requests) {
    for (int rank = 1; rank < group_.size(); ++rank) {
      if (request->status.ok()) request->status = CopyOf(request, rank)->status;
    }
    // Of a step that not all ranks have made there may be anything in the latents.
    if (!ran.ok()) request->status = ran;
  }
}

Status RankStages::Decode(RequestState& request) {
  SEGUE_RETURN_IF_ERROR(health());
  SEGUE_RETURN_IF_ERROR(OnEach(
      "decode", [&](int rank) { return rank == 0 ? pipeline(0).Decode(request) : Status(); }));
  return health();  // of the last steps on GPUs, which are over by now
}

void RankStages::Forget(const RequestState& request) {
  pipeline(0).Forget(request);
  for (size_t rank = 1; rank < ranks_.size(); ++rank) {
    const auto found = ranks_[rank]->copies.find(request.id);
    if (found == ranks_[rank]->copies.end()) continue;
    ranks_[rank]->pipeline->Forget(*found->second);
    ranks_[rank]->copies.erase(found);
  }
}

Status RankStages::health() const {
  Status cause = meeting_.health();
  for (int rank = 0; rank < group_.size(); ++rank) {
    Status seen = group_.rank(rank).health();
    if (seen.ok()) continue;
    if (cause.ok()) return seen;
    if (seen.error().Message() == cause.error().Message()) continue;
    // What stopped a rank, and the call in which another one missed it.
    Error both = cause.error();
    both.got += "; " + seen.error().Message();
    return both;
  }
  return cause;
}

int64_t RankStages::copied_bytes(int rank) const {
  const model::WeightStore& store = *ranks_[static_cast<size_t>(rank)]->store;
  return store.bytes(model::WeightGroup::kResident) + store.bytes(model::WeightGroup::kModulation);
}

}  // namespace segue::runtime
