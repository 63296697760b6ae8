// Builds the schedules of attention_schedule.h on the host, for callers that do so often: nothing
// is allocated once the largest batch was seen, and only entries in use are written.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention_schedule.h"

namespace segue::kernels {

// Where the parts of a schedule are written; they need not lie as in a whole schedule.
struct ScheduleParts {
  ScheduleHeader* header;
  SequenceRecord* sequences;  // of the sequences there are
  SegmentRecord* segments;    // theirs, capacity.segments each
  WorkItem* work;             // header->work entries
};

class ScheduleBuilder {
 public:
  // Looks at the lengths (BuildSchedule says of what form); keeps `rows` until Write. Mistakes are
  // in the header's `error`.
  const ScheduleHeader& Measure(const ScheduleShape& shape, const SegmentRows* rows,
                                int32_t sequences);

  // Writes what was measured, without mistakes: the bytes that BuildSchedule gives these parts.
  void Write(const ScheduleParts& parts);

 private:
  // Returns the end of what it wrote.
  WorkItem* WriteSequence(int32_t sequence, WorkItem* work);

  ScheduleShape shape_{};
  const SegmentRows* rows_ = nullptr;
  ScheduleHeader header_{};
  std::vector<SequenceSums> sums_;
  std::vector<int64_t> order_;   // of sequences: cost and number in one key each
  std::vector<WorkItem> tiles_;  // of one sequence, head 0
};

}  // namespace segue::kernels
