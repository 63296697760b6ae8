// How GPU work is timed beside its peer: graphs of many calls, events, blocks without idle between.
//
// Hot: one second of back-to-back launches, then ours / peer / peer / ours, each block at least
// half a second, medians; the chip has reached its power limit by then, as in a denoise loop.
// Burst: after an idle pause, 25 ms of work: the clocks of a cool chip.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

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

// A contender captured: one launch is `calls` calls and takes some milliseconds.
struct GpuProgram {
  GpuGraph graph;
  int64_t calls = 0;
  double call_us = 0;  // an estimate
};

// Errors: those of `enqueue` and of CUDA.
Result<GpuProgram> Record(const GpuContender& contender, const GpuStream& stream);

// Microseconds of a call, back to back for about `seconds`: to choose between two peers.
Result<double> TimeBriefly(const GpuProgram& program, double seconds, const GpuStream& stream);

// Errors: those of CUDA.
Result<GpuComparison> MeasureOnGpu(const GpuProgram& ours, const GpuProgram* peer,
                                   const MeasureOptions& options, const GpuStream& stream);

// Two rows, hot and burst, from `row` with its names filled in; see SetTimes.
std::vector<Row> RowsOf(const GpuComparison& comparison, double work, double unit_scale, Row row);

}  // namespace segue::bench
