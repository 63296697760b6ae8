// The blocks of memory that a transformer forward works in.
#pragma once

#include <cstdint>

#include "device/arena.h"
#include "model/dit/config.h"

namespace segue::model {

// Those of one stream, text or image.
struct DitStreamWorkspace {
  MatrixView hidden;  // [rows, hidden]: the residual stream
  MatrixView normed;  // [rows, hidden]
  // One block of memory, used twice: [rows, q | k | v] with the attention output [rows, local
  // hidden] behind it, and later the [rows, local mlp_hidden] of the feed-forward network.
  MatrixView qkv;
  MatrixView attention;
  MatrixView mlp;
};

struct DitWorkspace {
  static DitWorkspace LayOut(Arena& arena, const DitConfig& config, int ranks, int64_t image_rows,
                             int64_t text_rows, DType dtype);

  DitStreamWorkspace image;
  DitStreamWorkspace text;
};

// Those of TabulateModulation.
struct DitTimeWorkspace {
  static DitTimeWorkspace LayOut(Arena& arena, const DitConfig& config, int64_t timesteps,
                                 DType dtype);

  MatrixView sinusoids;    // [timesteps, kTimestepChannels]
  MatrixView time_hidden;  // [timesteps, hidden]
  MatrixView time;         // [timesteps, hidden]: SiLU of the timestep embedding
};

}  // namespace segue::model
