#include "model/dit/batch.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "model/layers/rotation.h"

namespace segue::model {
namespace {

Error BatchError(size_t sequence, const char* field, int64_t got, const char* wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = "pack transformer rows",
          .argument = "sequence " + std::to_string(sequence) + ": " + field,
          .got = std::to_string(got),
          .wanted = wanted};
}

// Writes rotations position by position; the columns of an axis turn with that axis' coordinate.
class RotationWriter {
 public:
  RotationWriter(const DitConfig& config, std::vector<float>& cos, std::vector<float>& sin)
      : cos_(&cos), sin_(&sin) {
    for (size_t axis = 0; axis < 3; ++axis) {
      frequencies_[axis] = InverseFrequencies(DitConfig::kRopeTheta, config.axes_dims_rope[axis]);
    }
  }

  void Append(const std::array<int64_t, 3>& coordinates) {
    size_t column = cos_->size();
    for (size_t axis = 0; axis < 3; ++axis) {
      cos_->resize(column + frequencies_[axis].size());
      sin_->resize(column + frequencies_[axis].size());
      WriteRotation(coordinates[axis], frequencies_[axis], cos_->data() + column,
                    sin_->data() + column);
      column += frequencies_[axis].size();
    }
  }

 private:
  std::array<std::vector<float>, 3> frequencies_;
  std::vector<float>* cos_;
  std::vector<float>* sin_;
};

int64_t FirstTextPosition(const DitSequence& sequence) {
  return std::max(sequence.grid_height / 2, sequence.grid_width / 2);
}

}  // namespace

Result<DitBatch> DitBatch::Create(const DitConfig& config, std::vector<DitSequence> sequences) {
  DitBatch batch;
  batch.sequences_ = std::move(sequences);
  SEGUE_RETURN_IF_ERROR(batch.Count());
  batch.WriteRowIndices();
  batch.WriteRotations(config);
  return batch;
}

Status DitBatch::Count() {
  constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();
  if (sequences_.empty()) return BatchError(0, "sequences", 0, "at least 1");
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const DitSequence& sequence = sequences_[i];
    // Sides below 2^15 keep their product in 31 bits.
    for (const int64_t side : {sequence.grid_height, sequence.grid_width}) {
      if (side < 1 || side >= 1 << 15) return BatchError(i, "grid side", side, "1..32767");
    }
    if (sequence.text_rows < 0 || sequence.text_rows > kMaxRows) {
      return BatchError(i, "text rows", sequence.text_rows, "0 or more");
    }
    if (sequence.timestep < 0) return BatchError(i, "timestep", sequence.timestep, "0 or more");
    image_begin_.push_back(image_rows_);
    text_begin_.push_back(text_rows_);
    image_rows_ += sequence.image_rows();
    text_rows_ += sequence.text_rows;
    timesteps_ = std::max(timesteps_, int64_t{sequence.timestep} + 1);
    if (image_rows_ > kMaxRows || text_rows_ > kMaxRows) {
      return BatchError(i, "rows so far", std::max(image_rows_, text_rows_), "at most 2^31 - 1");
    }
  }
  return {};
}

void DitBatch::WriteRowIndices() {
  for (const DitSequence& sequence : sequences_) {
    image_timestep_.insert(image_timestep_.end(), static_cast<size_t>(sequence.image_rows()),
                           sequence.timestep);
    text_timestep_.insert(text_timestep_.end(), static_cast<size_t>(sequence.text_rows),
                          sequence.timestep);
  }
}

void DitBatch::WriteRotations(const DitConfig& config) {
  RotationWriter writer(config, cos_, sin_);
  // Grids first, each distinct one once, then the text positions any sequence uses.
  std::map<std::pair<int64_t, int64_t>, int64_t> grids;
  int64_t first_text = std::numeric_limits<int64_t>::max();
  int64_t last_text = 0;
  for (const DitSequence& sequence : sequences_) {
    const int64_t height = sequence.grid_height;
    const int64_t width = sequence.grid_width;
    if (grids.emplace(std::pair(height, width), positions_).second) {
      for (int64_t r = 0; r < height; ++r) {
        for (int64_t c = 0; c < width; ++c) {
          writer.Append({0, r - (height - height / 2), c - (width - width / 2)});
        }
      }
      positions_ += sequence.image_rows();
    }
    first_text = std::min(first_text, FirstTextPosition(sequence));
    last_text = std::max(last_text, FirstTextPosition(sequence) + sequence.text_rows);
  }
  for (int64_t p = first_text; p < last_text; ++p) writer.Append({p, p, p});
  const int64_t text_table = positions_ - first_text;
  positions_ += last_text - first_text;

  for (const DitSequence& sequence : sequences_) {
    const int64_t grid = grids.at({sequence.grid_height, sequence.grid_width});
    for (int64_t i = 0; i < sequence.image_rows(); ++i) {
      image_position_.push_back(static_cast<int32_t>(grid + i));
    }
    const int64_t text = text_table + FirstTextPosition(sequence);
    for (int64_t i = 0; i < sequence.text_rows; ++i) {
      text_position_.push_back(static_cast<int32_t>(text + i));
    }
  }
}

}  // namespace segue::model
