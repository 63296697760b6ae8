// Which bytes of a schedule go to the device, and where they wait on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "device/upload_ring.h"
#include "kernels/schedule_builder.h"

namespace segue::attention {

// The used parts of a schedule, closely packed in host memory. Parts that nearly touch on the
// device are one copy, gap included, since a copy costs more than the bytes. What a gap holds does
// not matter: records of sequences that a batch has not, and entries past header.work, are never
// read.
class ScheduleUpload {
 public:
  // For `sequences` sequences and `work` entries, into the schedule at `schedule`.
  void LayOut(const kernels::ScheduleCapacity& capacity, int32_t sequences, int32_t work,
              void* schedule);

  int64_t bytes() const { return bytes_; }
  const std::vector<UploadRing::Copy>& copies() const { return copies_; }
  // Where the builder writes. Precondition: `memory` has bytes() bytes aligned to 16.
  kernels::ScheduleParts PartsIn(void* memory) const;

 private:
  // Returns the part's offset in host memory.
  int64_t Add(uint8_t* to, int64_t size);

  std::vector<UploadRing::Copy> copies_;
  int64_t bytes_ = 0;
  int64_t records_ = 0;
  int64_t segments_ = 0;
  int64_t work_ = 0;
};

}  // namespace segue::attention
