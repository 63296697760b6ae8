#include "attention/backends/cpu.h"

#include <algorithm>
#include <functional>

#include "attention/backends/backends.h"
#include "attention/rows_view.h"
#include "kernels/cpu/isa.h"

namespace segue::attention {

using kernels::Context;
using kernels::CpuIsa;

void GatherRows(const Sequence& sequence, const SegmentField& which, int64_t begin, int64_t count,
                float** rows) {
  for (const Segment& segment : sequence.segments) {
    if (count == 0) return;
    const int64_t available = segment.*which.count;
    if (begin >= available) {
      begin -= available;
      continue;
    }
    const RowsView& view = segment.*which.view;
    float* head = static_cast<float*>(view.data) + which.head * HeadStride(view, which.head_dim);
    const int64_t here = std::min(count, available - begin);
    for (int64_t row = begin; row < begin + here; ++row) {
      *rows++ = head + row * view.row_stride;
    }
    count -= here;
    begin = 0;
  }
}

namespace {

// Causal limits are compared as float32, which counts exactly up to 2^24.
bool CausalLimitsAreExact(const Params& params) {
  for (const Sequence& sequence : params.sequences) {
    int64_t keys = 0;
    for (const Segment& segment : sequence.segments) keys += segment.kv_rows;
    if (keys > int64_t{1} << 24) return false;
  }
  return true;
}

}  // namespace

const char* RejectsCpu(const Params& params, const Context& context) {
  if (params.options.element_type != ElementType::kFloat32) return "float32 elements only";
  if (params.options.head_dim > kMostHeadDim) return "head_dim above 1024";
  if (params.options.causal && !CausalLimitsAreExact(params)) {
    return "causal sequences of more than 2^24 keys";
  }
  return kernels::cpu::MissingIsa(CpuIsa::kAvx2, context);
}

Status RunCpu(const Params& params, const Context& context) {
  const bool wide = kernels::cpu::MissingIsa(CpuIsa::kAvx512, context) == nullptr;
  const TileCode attend = wide ? kAttendTileAvx512 : kAttendTileAvx2;
  const TilePlan plan = MakeTilePlan(params.options, params.sequences, kQueryBlock);
  ThreadPool& pool = context.stream.pool();
  const auto body = [&](int64_t task, int worker) {
    attend(params, plan, plan.tiles[task], pool.Scratch(worker));
  };
  pool.ForEach(static_cast<int64_t>(plan.tiles.size()), std::cref(body));
  return {};
}

}  // namespace segue::attention
