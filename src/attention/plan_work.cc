#include "attention/plan_work.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "attention/plan_check.h"

namespace segue::attention {
namespace {

// "1 sequence", "2 sequences"
std::string Count(int64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

void AssignWork(WorkList& list) {
  if (list.workers.empty()) return;
  const auto give = [&list](size_t worker, const WorkTile& tile) {
    ++list.workers[worker].tiles;
    list.workers[worker].key_tiles += tile.key_tiles;
  };
  if (!list.dynamic) {
    for (size_t i = 0; i < list.tiles.size(); ++i) give(i % list.workers.size(), list.tiles[i]);
    return;
  }
  // Whoever is done first takes the next one; of several the first.
  using Free = std::pair<int64_t, size_t>;
  std::priority_queue<Free, std::vector<Free>, std::greater<>> queue;
  for (size_t worker = 0; worker < list.workers.size(); ++worker) queue.push({0, worker});
  for (const WorkTile& tile : list.tiles) {
    const auto [time, worker] = queue.top();
    queue.pop();
    give(worker, tile);
    // A tile without keys still takes its place in the queue.
    queue.push({time + std::max(tile.key_tiles, 1), worker});
  }
}

std::string Describe(const WorkList& list) {
  int64_t key_tiles = 0;
  int64_t most = 0;
  for (const WorkTile& tile : list.tiles) key_tiles += tile.key_tiles;
  for (const WorkerLoad& worker : list.workers) most = std::max(most, worker.key_tiles);
  std::string text = Count(static_cast<int64_t>(list.tiles.size()), "tile") + " of at most " +
                     std::to_string(list.query_rows) + " query rows";
  if (list.halves > 0) text += ", the last " + std::to_string(list.halves) + " of them halves";
  text += list.dynamic ? ", taken as workers become free" : ", in steps of the workers";
  text += "; " + std::to_string(key_tiles) + " tiles of " + std::to_string(list.key_rows) +
          " keys, at most " + std::to_string(most) + " by one of " +
          Count(static_cast<int64_t>(list.workers.size()), "worker");
  return text;
}

std::string Describe(const PlanSettings& settings, Span<const BackendChoice> choices) {
  const Options& options = settings.options;
  std::string text =
      std::to_string(options.q_heads) + " query and " + std::to_string(options.kv_heads) +
      " key/value heads of " + std::to_string(options.head_dim) + ", " +
      ElementTypeName(options.element_type) + (options.causal ? ", causal" : ", not causal") +
      (settings.place == Place::kCuda ? ", on CUDA" : ", on the CPU");
  if (settings.gpu) {
    text += " (compute capability " + std::to_string(settings.gpu->compute_capability / 10) + "." +
            std::to_string(settings.gpu->compute_capability % 10) + ", " +
            std::to_string(settings.gpu->multiprocessors) + " multiprocessors)";
  }
  text += "\nat most " + Count(settings.max_sequences, "sequence") + " of " +
          Count(settings.max_segments, "segment") + ", " +
          Count(settings.max_query_rows, "query row") + ", in " +
          Count(static_cast<int64_t>(settings.tensors.size()), "tensor set") + "\n";
  for (const BackendChoice& choice : choices) {
    text += "back end " + choice.backend + ": " +
            (choice.reason.empty() ? std::string("chosen") : choice.reason) + "\n";
  }
  return text;
}

}  // namespace segue::attention
