// The stages of requests on several ranks of this process: a thread a rank, which run the same
// steps of the same requests.
//
// Every rank has a copy of a request: the same noise, schedule and text, and after every step the
// same latents, since sums have the same bytes on all ranks. Rank 0 encodes, decodes and reports;
// its copy is the engine's.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "comm/group.h"
#include "device/thread_pool.h"
#include "model/weights/checkpoint.h"
#include "model/weights/weight_store.h"
#include "runtime/gpu_rank.h"
#include "runtime/pipeline.h"

namespace segue::runtime {

// How a picture is spread over ranks; at most one of the two.
struct RankLayout {
  int tensor = 1;                // ranks that share every layer of the transformer
  bool splits_branches = false;  // two ranks, one for each guidance branch

  int ranks() const { return splits_branches ? 2 : tensor; }
};

// Errors: a layout that there is none of, with the option's name.
Status CheckRankLayout(const RankLayout& layout);

struct HostRanksSettings {
  const model::Checkpoint* checkpoint = nullptr;
  // Stream and communicator are each rank's own, the log is rank 0's.
  model::ForwardContext context;
  RankLayout layout;
  int threads = 1;  // of the CPU, dealt out to the ranks; each has at least one
  DeviceMemory* memory = nullptr;
  // How long a rank waits for another. They do equal work on cores that others may use too.
  std::chrono::milliseconds time_limit{300'000};
};

// For one thread. A rank that fails fails the requests that run, and leaves nothing healthy:
// health() says from then on why.
class RankStages final : public Stages {
 public:
  // Every rank views its slices of the weights; columns, which do not lie together in the files,
  // are copied, each by the rank that has it. Errors: as of QwenImage::Load, no memory.
  // Precondition: what the settings point to outlives the object.
  static Result<std::unique_ptr<RankStages>> OnHost(const HostRanksSettings& settings);
  // Rank i on device settings.device + i. The settings' communicator, networks, memory and pool are
  // each rank's own. Errors: those of comm::Group::OnGpus and LoadGpuRank; branches that are split.
  static Result<std::unique_ptr<RankStages>> OnGpus(const GpuRankSettings& settings,
                                                    const RankLayout& layout);
  ~RankStages() override;

  void Mount(RequestState& request) const override;
  Status Encode(RequestState& request) override;
  void Denoise(Span<RequestState* const> requests) override;
  Status Decode(RequestState& request) override;
  void Forget(const RequestState& request) override;
  Status health() const override;

  // Host memory that a rank's weights take beside the files' mappings.
  int64_t copied_bytes(int rank) const;
  const comm::Group& group() const { return group_; }
  // Rank 0's; null: on the host.
  const GpuRank* gpu() const { return ranks_[0]->gpu ? &*ranks_[0]->gpu : nullptr; }

 private:
  struct Rank {
    explicit Rank(int threads) : pool(threads) {}
    ThreadPool pool;
    std::optional<model::WeightStore> store;
    std::unique_ptr<const model::QwenImage> model;
    std::unique_ptr<Pipeline> host_pipeline;
    std::optional<GpuRank> gpu;                                 // in place of the three
    Pipeline* pipeline = nullptr;                               // whichever there is
    std::map<RequestId, std::unique_ptr<RequestState>> copies;  // none on rank 0
  };

  RankStages(comm::Group group, std::chrono::milliseconds time_limit)
      : group_(std::move(group)), meeting_(group_.size(), time_limit) {}
  Status LoadRank(int rank, const HostRanksSettings& settings);
  Status LoadRank(int rank, const GpuRankSettings& settings);
  Pipeline& pipeline(int rank) const { return *ranks_[static_cast<size_t>(rank)]->pipeline; }
  // A rank's copy of a request; rank 0's is the request.
  RequestState* CopyOf(RequestState* request, int rank) const;
  // Runs `body(rank)` on every rank's thread; errors leave the group as it is. The first rank's.
  template <typename Body>
  Status OnEach(const char* operation, const Body& body);

  comm::SingleRank alone_;  // what the transformer's layers see where branches are split
  comm::Group group_;
  RankMeeting meeting_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<comm::RankThreads> threads_;
};

}  // namespace segue::runtime
