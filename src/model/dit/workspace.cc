#include "model/dit/workspace.h"

#include <algorithm>

namespace segue::model {
namespace {

struct StreamSize {
  bool text = false;
  int64_t rows = 0;
};

DitStreamWorkspace LayOutStream(Arena& arena, const DitConfig& config, int ranks,
                                const StreamSize& size, DType dtype) {
  const int64_t rows = size.rows;
  const int64_t hidden = config.hidden();
  const int64_t local = hidden / ranks;
  const int64_t local_mlp = config.local_mlp_hidden(size.text, ranks);
  DitStreamWorkspace stream;
  stream.hidden = arena.TakeMatrix("transformer hidden", rows, hidden, dtype);
  stream.normed = arena.TakeMatrix("transformer normed", rows, hidden, dtype);
  const int64_t element = static_cast<int64_t>(SizeOf(dtype));
  auto* shared = static_cast<char*>(
      arena.TakeBytes("transformer qkv or mlp", rows * std::max(4 * local, local_mlp) * element));
  stream.qkv = ContiguousMatrix(shared, dtype, rows, 3 * local);
  stream.attention = ContiguousMatrix(
      shared == nullptr ? nullptr : shared + rows * 3 * local * element, dtype, rows, local);
  stream.mlp = ContiguousMatrix(shared, dtype, rows, local_mlp);
  return stream;
}

}  // namespace

DitWorkspace DitWorkspace::LayOut(Arena& arena, const DitConfig& config, int ranks,
                                  int64_t image_rows, int64_t text_rows, DType dtype) {
  DitWorkspace workspace;
  workspace.image = LayOutStream(arena, config, ranks, {false, image_rows}, dtype);
  workspace.text = LayOutStream(arena, config, ranks, {true, text_rows}, dtype);
  return workspace;
}

DitTimeWorkspace DitTimeWorkspace::LayOut(Arena& arena, const DitConfig& config, int64_t timesteps,
                                          DType dtype) {
  return {.sinusoids = arena.TakeMatrix("timestep sinusoids", timesteps,
                                        DitConfig::kTimestepChannels, dtype),
          .time_hidden = arena.TakeMatrix("timestep hidden", timesteps, config.hidden(), dtype),
          .time = arena.TakeMatrix("timestep embedding", timesteps, config.hidden(), dtype)};
}

}  // namespace segue::model
