// Modulation of timesteps, tabulated once and kept: it follows from the timestep alone, so all
// steps of all requests share it, whatever their schedules.
#pragma once

#include <cstdint>
#include <vector>

#include "base/span.h"
#include "device/arena.h"
#include "model/dit/dit.h"
#include "model/layers/placement.h"
#include "runtime/row_cache.h"

namespace segue::runtime {

struct ModulationBlocks {
  static ModulationBlocks LayOut(Arena& arena, const model::DitConfig& config,
                                 const model::Placement& placement, int64_t rows);

  MatrixView table;            // [rows, modulation_width()]
  float* timesteps = nullptr;  // [those tabulated together]
  model::DitTimeWorkspace workspace;
};

// Bounded: of more timesteps than it has rows, those used longest ago are computed again. Rows are
// written by work on the context's stream, behind the work enqueued before. Not thread-safe.
class ModulationCache {
 public:
  // Bytes of a cache of so many rows, its workspace included.
  static int64_t Bytes(const model::DitConfig& config, const model::Placement& placement,
                       int64_t rows);

  // Precondition: `memory` outlives the cache, and `dit` does until it is sealed. Errors: no
  // memory.
  static Result<ModulationCache> Create(const model::Dit& dit, const model::Placement& placement,
                                        int64_t rows, DeviceMemory& memory);

  // [rows, modulation_width()]
  const MatrixView& table() const { return blocks_.table; }

  // The row of every timestep (sigma in 0..1), tabulating those that have none: as few products as
  // the free rows' order allows. Rows hold until a later call needs the room.
  // Errors: more different timesteps than rows; one that a sealed cache does not have; a failed
  // launch, after which the rows that were to be written are forgotten.
  Result<std::vector<int32_t>> Rows(Span<const float> timesteps,
                                    const model::ForwardContext& context);

  // No timestep is tabulated from now on: the weights that modulation follows from may go. The
  // stream must have passed the work of earlier calls by then.
  void Seal() { dit_ = nullptr; }
  bool sealed() const { return dit_ == nullptr; }
  bool Contains(float timestep) const;

  int64_t rows() const { return cache_.rows(); }
  int64_t hits() const { return cache_.hits(); }
  int64_t misses() const { return cache_.misses(); }

 private:
  ModulationCache(const model::Dit& dit, int64_t rows) : dit_(&dit), cache_(rows) {}
  Status Tabulate(Span<const RowCache::Lookup::Miss> run, const model::ForwardContext& context);

  const model::Dit* dit_;
  RowCache cache_;
  Arena memory_;
  ModulationBlocks blocks_;
};

}  // namespace segue::runtime
