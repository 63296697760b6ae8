#include "bench/gpu_host.h"

#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <utility>

#include "bench/attention_case.h"
#include "bench/gpu.h"
#include "segue/attention_plan.h"

namespace segue::bench {
namespace {

using attention::Plan;
using attention::PlanSettings;
using attention::SegmentRows;
using attention::TensorSet;
using Clock = std::chrono::steady_clock;

constexpr int kWarmUp = 50;
constexpr int kSamples = 400;
constexpr int64_t kElement = 2;  // bytes of a bfloat16

struct HostCase {
  int32_t sequences = 0;
  int32_t heads = 0;
  int32_t head_dim = 128;
  int32_t longest = 0;

  int32_t rows() const { return sequences * longest; }
};

Result<HostCase> ReadCase(const Case& one) {
  HostCase result;
  const auto read = [&one](const char* key, int64_t most, int32_t* value) -> Status {
    SEGUE_ASSIGN_OR_RETURN(const int64_t got, one.Integer(key));
    if (got < 1 || got > most) {
      return Error{.code = ErrorCode::kInvalidArgument,
                   .operation = "read benchmark suite",
                   .argument = "case " + one.name + ": " + key,
                   .got = std::to_string(got),
                   .wanted = "1 to " + std::to_string(most)};
    }
    *value = static_cast<int32_t>(got);
    return {};
  };
  SEGUE_RETURN_IF_ERROR(read("sequences", 2048, &result.sequences));
  SEGUE_RETURN_IF_ERROR(read("heads", 1024, &result.heads));
  SEGUE_RETURN_IF_ERROR(read("longest", 8192, &result.longest));
  if (!one.Text("head_dim", "").empty()) {
    SEGUE_RETURN_IF_ERROR(read("head_dim", 256, &result.head_dim));
  }
  return result;
}

// Sequences one after the other in one tensor, each of a random length.
std::vector<SegmentRows> RandomLengths(const HostCase& c, std::minstd_rand* random) {
  std::vector<SegmentRows> rows;
  for (int32_t i = 0; i < c.sequences; ++i) {
    const auto length = 1 + static_cast<int32_t>((*random)() % static_cast<uint32_t>(c.longest));
    rows.push_back({0, i * c.longest, length, i * c.longest, length});
  }
  return rows;
}

PlanSettings SettingsOf(const HostCase& c) {
  PlanSettings settings;
  settings.options = {.q_heads = c.heads,
                      .kv_heads = c.heads,
                      .head_dim = c.head_dim,
                      .softmax_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                      .element_type = attention::ElementType::kBFloat16};
  settings.place = attention::Place::kCuda;
  settings.max_sequences = c.sequences;
  settings.max_segments = 1;
  settings.tensors = {{c.rows(), c.rows()}};
  settings.backend = "sm90";
  return settings;
}

// `prepare` is not timed; before each sample the GPU has nothing left to do.
Result<Row> Time(const std::function<void()>& prepare, const std::function<Status()>& timed,
                 Row row) {
  std::vector<double> samples_us;
  for (int i = 0; i < kWarmUp + kSamples; ++i) {
    prepare();
    SEGUE_RETURN_IF_ERROR(SynchronizeGpu());
    const Clock::time_point start = Clock::now();
    SEGUE_RETURN_IF_ERROR(timed());
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    if (i >= kWarmUp) samples_us.push_back(us);
  }
  SEGUE_RETURN_IF_ERROR(SynchronizeGpu());
  const Times times = Summarize(std::move(samples_us));
  row.mode = "host";
  row.median_us = times.median_us;
  row.min_us = times.min_us;
  row.max_us = times.max_us;
  return row;
}

}  // namespace

Result<std::vector<Row>> BenchGpuHost(const Case& one, const SuiteOptions&) {
  SEGUE_ASSIGN_OR_RETURN(const HostCase c, ReadCase(one));
  SEGUE_ASSIGN_OR_RETURN(const GpuStream stream, GpuStream::Create());
  SEGUE_ASSIGN_OR_RETURN(Plan plan, Plan::Create(SettingsOf(c)));
  const int64_t width = int64_t{c.heads} * c.head_dim;
  SEGUE_ASSIGN_OR_RETURN(const GpuBuffer fused,
                         GpuBuffer::Allocate(c.rows() * 3 * width * kElement));
  SEGUE_ASSIGN_OR_RETURN(const GpuBuffer out, GpuBuffer::Allocate(c.rows() * width * kElement));
  SEGUE_ASSIGN_OR_RETURN(const GpuBuffer workspace, GpuBuffer::Allocate(plan.workspace_bytes()));
  SEGUE_RETURN_IF_ERROR(FillNormal(fused.data(), c.rows() * 3 * width, 9, stream));
  SEGUE_RETURN_IF_ERROR(plan.Prepare(workspace.data(), stream.get()));
  auto* q = static_cast<uint16_t*>(fused.data());
  const TensorSet tensors = {.q = {q, 3 * width},
                             .k = {q + width, 3 * width},
                             .v = {q + 2 * width, 3 * width},
                             .o = {out.data(), width},
                             .q_rows = c.rows(),
                             .kv_rows = c.rows()};
  const auto run = [&]() -> Status {
    return plan.Run({&tensors, 1}, nullptr, 0, workspace.data(), stream.get());
  };
  std::minstd_rand random(3);
  std::vector<SegmentRows> rows = RandomLengths(c, &random);
  SEGUE_RETURN_IF_ERROR(plan.SetLengths(rows, workspace.data(), stream.get()));
  SEGUE_RETURN_IF_ERROR(run());
  SEGUE_ASSIGN_OR_RETURN(const attention::LengthsReport report,
                         plan.ReadReport(workspace.data(), stream.get()));
  if (report.error != 0) {
    return Error{.code = ErrorCode::kInternal,
                 .operation = "verify plan",
                 .argument = "case " + one.name,
                 .got = report.description,
                 .wanted = "lengths that the device takes"};
  }
  const auto set = [&] { return plan.SetLengths(rows, workspace.data(), stream.get()); };
  SEGUE_ASSIGN_OR_RETURN(
      Row cached, Time([] {}, set, {.case_name = one.name + "-cached", .variant = plan.backend()}));
  SEGUE_ASSIGN_OR_RETURN(Row call,
                         Time([] {},
                              [&]() -> Status {
                                SEGUE_RETURN_IF_ERROR(set());
                                return run();
                              },
                              {.case_name = one.name + "-cached-call", .variant = plan.backend()}));
  SEGUE_ASSIGN_OR_RETURN(Row fresh,
                         Time([&] { rows = RandomLengths(c, &random); }, set,
                              {.case_name = one.name + "-new-lengths", .variant = plan.backend()}));
  return std::vector<Row>{std::move(cached), std::move(call), std::move(fresh)};
}

}  // namespace segue::bench
