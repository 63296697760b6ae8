#include "attention/backends/schedule_upload.h"

namespace segue::attention {

void ScheduleUpload::LayOut(const kernels::ScheduleCapacity& capacity, int32_t sequences,
                            int32_t work, void* schedule) {
  copies_.clear();
  bytes_ = 0;
  auto* to = static_cast<uint8_t*>(schedule);
  records_ =
      Add(to, kernels::SequencesOffset() + sequences * int64_t{sizeof(kernels::SequenceRecord)});
  segments_ = Add(to + kernels::SegmentsOffset(capacity),
                  int64_t{sequences} * capacity.segments * int64_t{sizeof(kernels::SegmentRecord)});
  work_ = Add(to + kernels::WorkOffset(capacity), work * int64_t{sizeof(kernels::WorkItem)});
}

kernels::ScheduleParts ScheduleUpload::PartsIn(void* memory) const {
  auto* bytes = static_cast<uint8_t*>(memory);
  return {reinterpret_cast<kernels::ScheduleHeader*>(bytes + records_),
          reinterpret_cast<kernels::SequenceRecord*>(bytes + records_ + kernels::SequencesOffset()),
          reinterpret_cast<kernels::SegmentRecord*>(bytes + segments_),
          reinterpret_cast<kernels::WorkItem*>(bytes + work_)};
}

int64_t ScheduleUpload::Add(uint8_t* to, int64_t size) {
  constexpr int64_t kSmallGap = 16 << 10;
  if (size == 0) return bytes_;
  if (!copies_.empty()) {
    UploadRing::Copy& last = copies_.back();
    const int64_t gap = to - (static_cast<uint8_t*>(last.to) + last.bytes);
    if (gap <= kSmallGap) {
      const int64_t from = bytes_ + gap;
      last.bytes += gap + size;
      bytes_ = from + size;
      return from;
    }
  }
  copies_.push_back({.from = bytes_, .to = to, .bytes = size});
  bytes_ += size;
  return copies_.back().from;
}

}  // namespace segue::attention
