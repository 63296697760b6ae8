// The packed rows of a transformer forward: which sequence each row belongs to and where it sits.
//
// Text rows of all sequences lie one after another in one matrix, image rows in another. A batch
// describes them; it changes when a sequence joins or leaves, not from step to step.
#pragma once

#include <cstdint>
#include <vector>

#include "base/span.h"
#include "model/dit/config.h"
#include "segue/status.h"

namespace segue::model {

// One sequence: a prompt's text rows and an image's latent rows, which attend to each other.
struct DitSequence {
  int64_t text_rows = 0;
  int64_t grid_height = 0;  // latent rows of tokens: picture height / 16
  int64_t grid_width = 0;
  // Which of the forward's timesteps it is at. The two branches of a guided request share one, so
  // that its modulation is computed once.
  int32_t timestep = 0;

  int64_t image_rows() const { return grid_height * grid_width; }
};

class DitBatch {
 public:
  // Errors: no sequence, a sequence without image rows, negative text rows, a timestep index that
  // is negative, or so many rows that they cannot be counted in 31 bits.
  static Result<DitBatch> Create(const DitConfig& config, std::vector<DitSequence> sequences);

  const std::vector<DitSequence>& sequences() const { return sequences_; }
  int64_t image_rows() const { return image_rows_; }
  int64_t text_rows() const { return text_rows_; }
  // One more than the largest timestep index.
  int64_t timesteps() const { return timesteps_; }
  // First row of a sequence in the packed matrices.
  int64_t image_begin(size_t sequence) const { return image_begin_[sequence]; }
  int64_t text_begin(size_t sequence) const { return text_begin_[sequence]; }

  // Timestep index of every row.
  const std::vector<int32_t>& image_timestep() const { return image_timestep_; }
  const std::vector<int32_t>& text_timestep() const { return text_timestep_; }

  // Rotation table, [positions, head_dim / 2], and the row of it that every packed row uses.
  // Positions (frame, row, column) of a token (r, c) of an H x W grid are
  // (0, r - (H - H/2), c - (W - W/2)): centred, with one more negative where a side is odd. Text
  // row i sits at max(H/2, W/2) + i on all three axes. Source: diffusers, QwenEmbedRope with
  // scale_rope; angles are computed here, so no table limits them.
  const std::vector<float>& cos() const { return cos_; }
  const std::vector<float>& sin() const { return sin_; }
  int64_t positions() const { return positions_; }
  const std::vector<int32_t>& image_position() const { return image_position_; }
  const std::vector<int32_t>& text_position() const { return text_position_; }

 private:
  DitBatch() = default;
  Status Count();
  void WriteRowIndices();
  void WriteRotations(const DitConfig& config);

  std::vector<DitSequence> sequences_;
  int64_t image_rows_ = 0;
  int64_t text_rows_ = 0;
  int64_t timesteps_ = 0;
  std::vector<int64_t> image_begin_;
  std::vector<int64_t> text_begin_;
  std::vector<int32_t> image_timestep_;
  std::vector<int32_t> text_timestep_;
  std::vector<float> cos_;
  std::vector<float> sin_;
  int64_t positions_ = 0;
  std::vector<int32_t> image_position_;
  std::vector<int32_t> text_position_;
};

}  // namespace segue::model
