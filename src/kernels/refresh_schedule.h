// Schedules of attention made on the device.
#pragma once

#include "device/stream.h"
#include "kernels/attention_schedule.h"
#include "segue/status.h"

namespace segue::kernels {

// Enqueues what BuildSchedule does, byte for byte, from lengths in device memory: `rows` holds
// capacity.segments entries a sequence, `sequences` one count. Mistakes in the lengths are reported
// in the schedule's header and leave it without work.
// Errors: a capacity out of range; a launch that CUDA refuses; a build without CUDA.
Status RefreshSchedule(const ScheduleShape& shape, const SegmentRows* rows,
                       const int32_t* sequences, void* schedule, const Stream& stream);

}  // namespace segue::kernels
