#include "runtime/modulation_cache.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "device/transfer.h"

namespace segue::runtime {
namespace {

// Timesteps tabulated in one product: the commonest schedule (50) at once, while its workspace
// stays below a megabyte.
constexpr int64_t kTogether = 64;

}  // namespace

ModulationBlocks ModulationBlocks::LayOut(Arena& arena, const model::DitConfig& config,
                                          const model::Placement& placement, int64_t rows) {
  const DType dtype = placement.activation_type();
  return {.table = arena.TakeMatrix("modulation", rows, config.modulation_width(), dtype),
          .timesteps = arena.Take<float>("timesteps", kTogether),
          .workspace = model::DitTimeWorkspace::LayOut(arena, config, kTogether, dtype)};
}

int64_t ModulationCache::Bytes(const model::DitConfig& config, const model::Placement& placement,
                               int64_t rows) {
  Arena arena;
  ModulationBlocks::LayOut(arena, config, placement, rows);
  return arena.peak_bytes();
}

Result<ModulationCache> ModulationCache::Create(const model::Dit& dit,
                                                const model::Placement& placement, int64_t rows,
                                                DeviceMemory& memory) {
  ModulationCache cache(dit, rows);
  SEGUE_ASSIGN_OR_RETURN(cache.memory_,
                         Arena::Create(memory, Bytes(dit.config(), placement, rows)));
  cache.blocks_ = ModulationBlocks::LayOut(cache.memory_, dit.config(), placement, rows);
  SEGUE_RETURN_IF_ERROR(cache.memory_.Check());
  return cache;
}

Status ModulationCache::Tabulate(Span<const RowCache::Lookup::Miss> run,
                                 const model::ForwardContext& context) {
  std::vector<float> timesteps;
  for (const RowCache::Lookup::Miss& miss : run) {
    timesteps.push_back(std::bit_cast<float>(miss.key));
  }
  const auto count = static_cast<int64_t>(run.size());
  SEGUE_RETURN_IF_ERROR(CopyIn(blocks_.timesteps, timesteps.data(),
                               count * static_cast<int64_t>(sizeof(float)),
                               context.kernels.stream));
  model::DitTimeWorkspace workspace = blocks_.workspace;
  for (MatrixView* block : {&workspace.sinusoids, &workspace.time_hidden, &workspace.time}) {
    block->rows = count;
  }
  return dit_->TabulateModulation(blocks_.timesteps, blocks_.table.Rows(run[0].row, count),
                                  workspace, context);
}

bool ModulationCache::Contains(float timestep) const {
  return cache_.Contains(std::bit_cast<uint32_t>(timestep));
}

Result<std::vector<int32_t>> ModulationCache::Rows(Span<const float> timesteps,
                                                   const model::ForwardContext& context) {
  std::vector<uint32_t> keys;
  for (const float timestep : timesteps) keys.push_back(std::bit_cast<uint32_t>(timestep));
  if (sealed()) {
    for (const float timestep : timesteps) {
      if (Contains(timestep)) continue;
      return Error{.code = ErrorCode::kUnsupported,
                   .operation = "tabulate modulation",
                   .argument = "timestep",
                   .got = std::to_string(timestep),
                   .wanted = "one of the " + std::to_string(rows()) + " tabulated at load"};
    }
  }
  auto lookup = cache_.Find(keys);
  if (!lookup) {
    return Error{.code = ErrorCode::kUnsupported,
                 .operation = "tabulate modulation",
                 .argument = "timesteps",
                 .got = std::to_string(timesteps.size()),
                 .wanted = "at most " + std::to_string(rows()) + " different ones in a step"};
  }
  const Span<const RowCache::Lookup::Miss> misses(lookup->misses);
  for (size_t begin = 0; begin < misses.size();) {
    size_t end = begin + 1;
    while (end < misses.size() && misses[end].row == misses[end - 1].row + 1 &&
           end - begin < static_cast<size_t>(kTogether)) {
      ++end;
    }
    const Status status = Tabulate(misses.subspan(begin, end - begin), context);
    if (!status.ok()) {
      cache_.Forget(misses.subspan(begin));
      return status.error();
    }
    begin = end;
  }
  return std::move(lookup->rows);
}

}  // namespace segue::runtime
