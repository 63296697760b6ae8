// Attention of a forward for any lengths up to its capacity, which lie in the memory of its device
// and may change between two runs recorded once.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "device/arena.h"
#include "model/dit/attention.h"
#include "model/layers/placement.h"
#include "model/layers/planned_attention.h"

namespace segue::model {

// Lengths of a batch as the device reads them: text and image segment of every sequence, and how
// many sequences there are.
struct DitLengths {
  static DitLengths LayOut(Arena& arena, int64_t max_sequences);

  attention::SegmentRows* all = nullptr;    // [max_sequences, 2]
  attention::SegmentRows* image = nullptr;  // the same without the text's query rows
  int32_t* sequences = nullptr;
};

// Text rows that each sequence has now; its place in the batch is as `batch` says.
// Precondition: as many as the batch's sequences, none larger than the batch's text rows.
struct DitHostLengths {
  DitHostLengths(const DitBatch& batch, Span<const int64_t> text_rows);

  std::vector<attention::SegmentRows> all;
  std::vector<attention::SegmentRows> image;
  int32_t sequences = 0;
};

// Two plans: one of every block but the last, and the last one's.
class PlannedDitAttention : public DitAttention {
 public:
  // For a workspace of so many rows, which may be counted only. Host only.
  // Errors: no back end that the network admits serves these heads on the placement's GPU; a
  // `backend` (empty: any) that does not, with the reason.
  static Result<PlannedDitAttention> Create(const DitConfig& config, const Placement& placement,
                                            const DitBatch& batch, const std::string& backend);

  int64_t workspace_bytes() const;
  // To be called before the first Refresh, and again when something else wrote this workspace.
  Status Prepare(void* workspace, const DitWorkspace& blocks, const Stream& stream);
  // Enqueues reading the lengths; once a step, may be captured.
  Status Refresh(const DitLengths& lengths, const Stream& stream);
  Status Run(DitQueries queries, const ForwardContext& context) const override;

  // Which back end runs and why the others do not.
  const attention::Plan& plan() const { return all_.plan(); }

 private:
  PlannedDitAttention(PlannedAttention all, PlannedAttention image);

  PlannedAttention all_;
  PlannedAttention image_;
  std::array<attention::TensorSet, 2> tensors_;  // text, image
};

}  // namespace segue::model
