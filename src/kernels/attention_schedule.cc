#include "kernels/attention_schedule.h"

#include <cstring>

#include "kernels/schedule_builder.h"

namespace segue::kernels {

void BuildSchedule(const ScheduleShape& shape, const SegmentRows* rows, int32_t sequences,
                   void* schedule) {
  auto* bytes = static_cast<uint8_t*>(schedule);
  const ScheduleCapacity& capacity = shape.capacity;
  const ScheduleParts parts{
      reinterpret_cast<ScheduleHeader*>(bytes),
      reinterpret_cast<SequenceRecord*>(bytes + SequencesOffset()),
      reinterpret_cast<SegmentRecord*>(bytes + SegmentsOffset(capacity)),
      reinterpret_cast<WorkItem*>(bytes + WorkOffset(capacity)),
  };
  std::memset(schedule, 0, static_cast<size_t>(WorkOffset(capacity)));
  ScheduleBuilder builder;
  const ScheduleHeader& header = builder.Measure(shape, rows, sequences);
  *parts.header = header;
  if (header.error == kScheduleOk) builder.Write(parts);
  for (int32_t i = header.work; i < capacity.work; ++i) parts.work[i] = {-1, 0, 0, 0};
}

}  // namespace segue::kernels
