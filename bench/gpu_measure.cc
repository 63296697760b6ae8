#include "bench/gpu_measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

namespace segue::bench {
namespace {

// A launch of a graph costs some microseconds of a stream's time: below a part in a thousand.
constexpr double kLaunchUs = 5000.0;
constexpr int64_t kMaxCalls = 4096;  // nodes take memory
// Launches wait in the stream so that the host never leaves it empty; the host waits for one that
// was enqueued so much work ago.
constexpr double kAheadUs = 100e3;
constexpr double kIdleSeconds = 0.4;
constexpr double kBurstUs = 25e3;
constexpr double kSampleUs = 30e3;  // between two questions to the card

struct Block {
  const GpuProgram* program = nullptr;
  int64_t launches = 0;
  std::vector<double>* samples_us = nullptr;  // of a call; null: warm-up
  bool watched = false;                       // whether the card is asked about its state
};

int64_t Launches(const GpuProgram& program, double us) {
  const double launch_us = program.call_us * static_cast<double>(program.calls);
  return std::max<int64_t>(1, std::llround(std::ceil(us / std::max(launch_us, 1.0))));
}

Block BlockOf(const GpuProgram& ours, double seconds, std::vector<double>* samples_us) {
  return {.program = &ours,
          .launches = Launches(ours, seconds * 1e6),
          .samples_us = samples_us,
          .watched = true};
}

Block WarmUp(const GpuProgram& ours, const MeasureOptions& options) {
  return {.program = &ours, .launches = Launches(ours, options.warmup_s * 1e6)};
}

// Runs blocks back to back, with an event after every launch.
class BlockRunner {
 public:
  BlockRunner(const GpuStream& stream, GpuSampler* sampler) : stream_(stream), sampler_(sampler) {}

  Status Run(const std::vector<Block>& blocks) {
    std::vector<const Block*> launches;
    double shortest_us = kLaunchUs;
    for (const Block& block : blocks) {
      launches.insert(launches.end(), static_cast<size_t>(block.launches), &block);
      shortest_us =
          std::min(shortest_us, block.program->call_us * static_cast<double>(block.program->calls));
    }
    const auto ahead =
        static_cast<size_t>(std::clamp(kAheadUs / std::max(shortest_us, 1.0), 4.0, 200.0));
    while (events_.size() < ahead + 2) {
      SEGUE_ASSIGN_OR_RETURN(GpuEvent event, GpuEvent::Create());
      events_.push_back(std::move(event));
    }
    SEGUE_RETURN_IF_ERROR(events_[0].Record(stream_));
    size_t done = 0;
    for (size_t i = 0; i < launches.size(); ++i) {
      SEGUE_RETURN_IF_ERROR(launches[i]->program->Launch(stream_));
      SEGUE_RETURN_IF_ERROR(EventAfter(i).Record(stream_));
      if (i + 1 < ahead) continue;
      SEGUE_RETURN_IF_ERROR(Finish(done, *launches[done]));
      ++done;
    }
    for (; done < launches.size(); ++done) {
      SEGUE_RETURN_IF_ERROR(Finish(done, *launches[done]));
    }
    return {};
  }

 private:
  const GpuEvent& EventAfter(size_t launch) const { return events_[(launch + 1) % events_.size()]; }

  Status Finish(size_t launch, const Block& block) {
    SEGUE_RETURN_IF_ERROR(EventAfter(launch).Wait());
    SEGUE_ASSIGN_OR_RETURN(const double us,
                           EventAfter(launch).Since(events_[launch % events_.size()]));
    if (block.samples_us != nullptr) {
      block.samples_us->push_back(us / static_cast<double>(block.program->calls));
    }
    since_sample_us_ += us;
    if (block.watched && sampler_ != nullptr && since_sample_us_ >= kSampleUs) {
      sampler_->Sample();
      since_sample_us_ = 0;
    }
    return {};
  }

  const GpuStream& stream_;
  GpuSampler* sampler_;
  std::vector<GpuEvent> events_;
  double since_sample_us_ = 0;
};

Comparison Compare(std::vector<double> ours, std::vector<double> peer) {
  Comparison comparison{.ours = Summarize(std::move(ours)), .peer = {}};
  if (!peer.empty()) comparison.peer = Summarize(std::move(peer));
  return comparison;
}

Result<GpuGraph> CaptureCalls(const GpuContender& contender, int64_t calls,
                              const GpuStream& stream) {
  return GpuGraph::Capture(stream, [&](void* cuda_stream) -> Status {
    for (int64_t i = 0; i < calls; ++i) {
      SEGUE_RETURN_IF_ERROR(contender.enqueue(cuda_stream, i % contender.rotation));
    }
    return {};
  });
}

Status Idle() {
  SEGUE_RETURN_IF_ERROR(SynchronizeGpu());
  std::this_thread::sleep_for(std::chrono::duration<double>(kIdleSeconds));
  return {};
}

Status RunBurst(const GpuProgram& program, std::vector<double>* samples_us,
                const GpuStream& stream) {
  SEGUE_RETURN_IF_ERROR(Idle());
  return BlockRunner(stream, nullptr)
      .Run({{.program = &program,
             .launches = Launches(program, kBurstUs),
             .samples_us = samples_us}});
}

Result<Comparison> MeasureBurst(const GpuProgram& ours, const GpuProgram* peer,
                                const GpuStream& stream) {
  std::vector<double> our_us;
  std::vector<double> peer_us;
  SEGUE_RETURN_IF_ERROR(RunBurst(ours, &our_us, stream));
  for (int i = 0; peer != nullptr && i < 2; ++i) {
    SEGUE_RETURN_IF_ERROR(RunBurst(*peer, &peer_us, stream));
  }
  SEGUE_RETURN_IF_ERROR(RunBurst(ours, &our_us, stream));
  return Compare(std::move(our_us), std::move(peer_us));
}

// Two blocks of the peer.
Status RunPeer(const OutsidePeer& peer, double seconds, double idle_before,
               std::vector<double>* samples_us) {
  for (int i = 0; i < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::duration<double>(idle_before));
    SEGUE_ASSIGN_OR_RETURN(const std::vector<double> block, peer(seconds));
    samples_us->insert(samples_us->end(), block.begin(), block.end());
  }
  return {};
}

}  // namespace

Result<double> TimeBriefly(const GpuProgram& program, double seconds, const GpuStream& stream) {
  std::vector<double> samples_us;
  SEGUE_RETURN_IF_ERROR(BlockRunner(stream, nullptr)
                            .Run({{.program = &program, .launches = 1},
                                  {.program = &program,
                                   .launches = Launches(program, seconds * 1e6),
                                   .samples_us = &samples_us}}));
  return Summarize(std::move(samples_us)).median_us;
}

Result<GpuProgram> Record(const GpuContender& contender, const GpuStream& stream) {
  GpuProgram once{.calls = contender.rotation, .call_us = kLaunchUs};
  SEGUE_ASSIGN_OR_RETURN(once.graph, CaptureCalls(contender, once.calls, stream));
  // Two launches: the first loads code.
  SEGUE_ASSIGN_OR_RETURN(once.call_us, TimeBriefly(once, 0, stream));
  const double rotation_us = once.call_us * static_cast<double>(once.calls);
  const auto wanted = static_cast<int64_t>(std::ceil(kLaunchUs / std::max(rotation_us, 0.1)));
  const int64_t rounds =
      std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, kMaxCalls / contender.rotation));
  if (rounds == 1) return once;
  GpuProgram program{.calls = rounds * contender.rotation, .call_us = once.call_us};
  SEGUE_ASSIGN_OR_RETURN(program.graph, CaptureCalls(contender, program.calls, stream));
  return program;
}

Result<GpuProgram> RecordCalls(const GpuContender& contender, int64_t calls,
                               const GpuStream& stream) {
  GpuProgram program{.calls = calls};
  SEGUE_ASSIGN_OR_RETURN(program.graph, CaptureCalls(contender, calls, stream));
  return program;
}

Result<GpuProgram> RunEagerly(const GpuContender& contender, const GpuStream& stream) {
  GpuProgram program{.eager = [contender](void* to) -> Status {
                       for (int64_t i = 0; i < contender.rotation; ++i) {
                         SEGUE_RETURN_IF_ERROR(contender.enqueue(to, i));
                       }
                       return {};
                     },
                     .calls = contender.rotation,
                     .call_us = kLaunchUs};
  SEGUE_ASSIGN_OR_RETURN(program.call_us, TimeBriefly(program, 0, stream));
  return program;
}

Result<GpuComparison> MeasureOnGpu(const GpuProgram& ours, const GpuProgram* peer,
                                   const MeasureOptions& options, const GpuStream& stream) {
  GpuSampler sampler(GpuBusId());
  std::vector<double> our_us;
  std::vector<double> peer_us;
  const Block our_block = BlockOf(ours, options.block_s, &our_us);
  std::vector<Block> blocks = {WarmUp(ours, options), our_block};
  if (peer != nullptr) {
    const Block peer_block{.program = peer,
                           .launches = Launches(*peer, options.block_s * 1e6),
                           .samples_us = &peer_us};
    blocks.insert(blocks.end(), {peer_block, peer_block});
  }
  blocks.push_back(our_block);
  SEGUE_RETURN_IF_ERROR(BlockRunner(stream, &sampler).Run(blocks));
  GpuComparison comparison{.hot = Compare(std::move(our_us), std::move(peer_us)),
                           .state = sampler.Take()};
  SEGUE_ASSIGN_OR_RETURN(comparison.burst, MeasureBurst(ours, peer, stream));
  return comparison;
}

Result<GpuComparison> MeasureBesideProcess(const GpuProgram& ours, const OutsidePeer& peer,
                                           const MeasureOptions& options, const GpuStream& stream) {
  GpuSampler sampler(GpuBusId());
  std::vector<double> our_us;
  std::vector<double> peer_us;
  const Block our_block = BlockOf(ours, options.block_s, &our_us);
  BlockRunner runner(stream, &sampler);
  SEGUE_RETURN_IF_ERROR(runner.Run({WarmUp(ours, options), our_block}));
  SEGUE_RETURN_IF_ERROR(RunPeer(peer, options.block_s, 0, &peer_us));
  SEGUE_RETURN_IF_ERROR(runner.Run({our_block}));
  GpuComparison comparison{.hot = Compare(std::move(our_us), std::move(peer_us)),
                           .state = sampler.Take()};
  our_us.clear();
  peer_us.clear();
  SEGUE_RETURN_IF_ERROR(RunBurst(ours, &our_us, stream));
  SEGUE_RETURN_IF_ERROR(RunPeer(peer, kBurstUs * 1e-6, kIdleSeconds, &peer_us));
  SEGUE_RETURN_IF_ERROR(RunBurst(ours, &our_us, stream));
  comparison.burst = Compare(std::move(our_us), std::move(peer_us));
  return comparison;
}

std::vector<Row> RowsOf(const GpuComparison& comparison, double work, double unit_scale, Row row) {
  Row hot = row;
  hot.mode = "hot";
  SetTimes(comparison.hot, work, unit_scale, &hot);
  hot.sm_clock_mhz = comparison.state.sm_clock_mhz;
  hot.power_w = comparison.state.power_w;
  hot.temp_c = comparison.state.temp_c;
  row.mode = "burst";
  SetTimes(comparison.burst, work, unit_scale, &row);
  return {std::move(hot), std::move(row)};
}

}  // namespace segue::bench
