// How GPU work is timed beside its peer: graphs of many calls, events, blocks without idle between.
//
// Hot: one second of back-to-back launches, then ours / peer / peer / ours, each block at least
// half a second, medians; the chip has reached its power limit by then, as in a denoise loop.
// Burst: after an idle pause, 25 ms of work: the clocks of a cool chip.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/gpu.h"
#include "bench/measure.h"
#include "bench/nvml.h"
#include "bench/report.h"

namespace segue::bench {

struct GpuContender {
  std::string name;
  std::string version;
  // Call c and call c + rotation work on the same memory; those between on other memory.
  int64_t rotation = 1;
  // Enqueues call number c of [0, rotation) once. Empty: there is no such contender.
  std::function<Status(void* stream, int64_t call)> enqueue;
};

struct GpuComparison {
  Comparison hot;
  Comparison burst;
  GpuState state;  // medians while ours ran hot
};

// What one launch is: `calls` calls of a contender, captured or enqueued one by one.
struct GpuProgram {
  Status Launch(const GpuStream& stream) const {
    return eager ? eager(stream.get()) : graph.Launch(stream);
  }

  GpuGraph graph;
  std::function<Status(void* stream)> eager;  // in the graph's place if there is one
  int64_t calls = 0;
  double call_us = 0;  // an estimate
};

// Captured, so many calls that a launch takes some milliseconds. Errors: those of `enqueue` and of
// CUDA.
Result<GpuProgram> Record(const GpuContender& contender, const GpuStream& stream);

// Captured, so many calls and no others: for work of several GPUs, which has to be in step. The
// estimate is missing. Errors as Record's.
Result<GpuProgram> RecordCalls(const GpuContender& contender, int64_t calls,
                               const GpuStream& stream);

// Enqueued by the host each time: one launch is a call of each rotation. Errors as Record's.
Result<GpuProgram> RunEagerly(const GpuContender& contender, const GpuStream& stream);

// Microseconds of a call, back to back for about `seconds`: to choose between two peers.
Result<double> TimeBriefly(const GpuProgram& program, double seconds, const GpuStream& stream);

// Errors: those of CUDA.
Result<GpuComparison> MeasureOnGpu(const GpuProgram& ours, const GpuProgram* peer,
                                   const MeasureOptions& options, const GpuStream& stream);

// A peer in another process: runs back to back for so many seconds, and gives the microseconds of
// each call.
using OutsidePeer = std::function<Result<std::vector<double>>(double seconds)>;

// The same beside a peer that launches its work itself. Between a block of ours and one of its
// there is a message and an answer, less than a millisecond.
Result<GpuComparison> MeasureBesideProcess(const GpuProgram& ours, const OutsidePeer& peer,
                                           const MeasureOptions& options, const GpuStream& stream);

// Two rows, hot and burst, from `row` with its names filled in; see SetTimes.
std::vector<Row> RowsOf(const GpuComparison& comparison, double work, double unit_scale, Row row);

}  // namespace segue::bench
