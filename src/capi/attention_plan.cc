// Plans of the C API.
#include <memory>
#include <span>

#include "capi/handles.h"

namespace segue::capi {
namespace {

using attention::PlanSettings;

constexpr char kCreate[] = "segue_attention_plan_create";
constexpr char kRun[] = "segue_attention_plan_run";

// Error unless there are `count` of what `list` points to.
template <typename Item>
Status CheckList(const char* function, const char* name, const Item* list, int32_t count) {
  if (count < 0) {
    return Invalid(function, std::string(name) + "_count", std::to_string(count), "0 or more");
  }
  if (count > 0 && list == nullptr) return Null(function, name);
  return {};
}

// Capacities: those given, for the others the batch's.
Status ReadCapacities(const segue_attention_plan_settings& given, PlanSettings& settings) {
  SEGUE_RETURN_IF_ERROR(CheckList(kCreate, "settings.tensors", given.tensors, given.tensor_count));
  if (given.batch != nullptr) {
    settings = PlanFor(given.batch->batch, settings.options, settings.place);
  }
  if (given.max_sequences != 0) settings.max_sequences = given.max_sequences;
  if (given.max_segments != 0) settings.max_segments = given.max_segments;
  if (given.max_query_rows != 0) settings.max_query_rows = given.max_query_rows;
  if (given.tensor_count == 0) return {};
  settings.tensors.clear();
  for (const segue_tensor_rows& rows : std::span(given.tensors, given.tensor_count)) {
    settings.tensors.push_back({.q_rows = rows.q_rows, .kv_rows = rows.kv_rows});
  }
  return {};
}

Result<PlanSettings> ReadSettings(const segue_attention_plan_settings* pointer) {
  SEGUE_ASSIGN_OR_RETURN(const segue_attention_plan_settings given,
                         Read(kCreate, "settings", pointer));
  PlanSettings settings;
  SEGUE_ASSIGN_OR_RETURN(settings.options, ReadOptions(kCreate, given.options));
  if (given.place != SEGUE_CPU && given.place != SEGUE_CUDA) {
    return Invalid(kCreate, "settings.place", std::to_string(given.place), "0 (CPU) or 1 (CUDA)");
  }
  settings.place = given.place == SEGUE_CPU ? attention::Place::kCpu : attention::Place::kCuda;
  SEGUE_RETURN_IF_ERROR(ReadCapacities(given, settings));
  settings.device_lengths = given.device_lengths != 0;
  settings.wants_lse = given.wants_lse != 0;
  if (given.backend != nullptr) settings.backend = given.backend;
  SEGUE_RETURN_IF_ERROR(
      CheckList(kCreate, "settings.admitted", given.admitted, given.admitted_count));
  for (int32_t i = 0; i < given.admitted_count; ++i) {
    if (given.admitted[i] == nullptr) {
      return Null(kCreate, "settings.admitted[" + std::to_string(i) + "]");
    }
    settings.admitted.emplace_back(given.admitted[i]);
  }
  settings.threads = given.threads;
  if (given.gpu_compute_capability != 0 || given.gpu_multiprocessors != 0) {
    settings.gpu = attention::Gpu{.compute_capability = given.gpu_compute_capability,
                                  .multiprocessors = given.gpu_multiprocessors};
  }
  return settings;
}

attention::TensorSet ReadTensors(const segue_tensor_set& set) {
  return {.q = ReadView(set.q),
          .k = ReadView(set.k),
          .v = ReadView(set.v),
          .o = ReadView(set.o),
          .q_rows = set.q_rows,
          .kv_rows = set.kv_rows};
}

Status Run(const segue_attention_plan* plan, const segue_attention_run* pointer) {
  if (plan == nullptr) return Null(kRun, "plan");
  SEGUE_ASSIGN_OR_RETURN(const segue_attention_run run, Read(kRun, "run", pointer));
  if (run.tensors == nullptr && run.batch != nullptr) {
    return plan->plan.Run(run.batch->batch.tensors, run.lse, run.lse_stride, run.workspace,
                          run.stream);
  }
  SEGUE_RETURN_IF_ERROR(CheckList(kRun, "run.tensors", run.tensors, run.tensor_count));
  std::vector<attention::TensorSet> tensors;
  tensors.reserve(static_cast<size_t>(run.tensor_count));
  for (int32_t i = 0; i < run.tensor_count; ++i) tensors.push_back(ReadTensors(run.tensors[i]));
  return plan->plan.Run(tensors, run.lse, run.lse_stride, run.workspace, run.stream);
}

}  // namespace
}  // namespace segue::capi

using segue::capi::Guard;
using segue::capi::Invalid;
using segue::capi::Null;

segue_result segue_attention_plan_create(const segue_attention_plan_settings* settings,
                                         segue_attention_plan** plan, segue_error* error) {
  if (plan != nullptr) *plan = nullptr;
  return Guard(error, [&]() -> segue::Status {
    if (plan == nullptr) return Null(segue::capi::kCreate, "plan");
    SEGUE_ASSIGN_OR_RETURN(const segue::attention::PlanSettings read,
                           segue::capi::ReadSettings(settings));
    SEGUE_ASSIGN_OR_RETURN(segue::attention::Plan made, segue::attention::Plan::Create(read));
    *plan = new segue_attention_plan{std::move(made)};
    return {};
  });
}

void segue_attention_plan_destroy(segue_attention_plan* plan) { delete plan; }

const char* segue_attention_plan_backend(const segue_attention_plan* plan) {
  return plan == nullptr ? nullptr : plan->plan.backend().c_str();
}

int64_t segue_attention_plan_workspace_bytes(const segue_attention_plan* plan) {
  return plan == nullptr ? -1 : plan->plan.workspace_bytes();
}

int64_t segue_attention_plan_max_query_rows(const segue_attention_plan* plan) {
  return plan == nullptr ? -1 : plan->plan.settings().max_query_rows;
}

size_t segue_attention_plan_describe(const segue_attention_plan* plan, char* text, size_t size) {
  if (plan == nullptr) return 0;
  size_t length = 0;
  Guard(nullptr, [&]() -> segue::Status {
    const std::string description = plan->plan.ToString();
    length = description.size();
    if (text != nullptr) segue::capi::CopyText(description, text, size);
    return {};
  });
  return length;
}

segue_result segue_attention_plan_prepare(segue_attention_plan* plan, void* workspace, void* stream,
                                          segue_error* error) {
  const char* function = __func__;
  return Guard(error, [&]() -> segue::Status {
    if (plan == nullptr) return Null(function, "plan");
    return plan->plan.Prepare(workspace, stream);
  });
}

segue_result segue_attention_plan_set_lengths(segue_attention_plan* plan,
                                              const segue_segment_rows* rows, int32_t sequences,
                                              void* workspace, void* stream, segue_error* error) {
  const char* function = __func__;
  return Guard(error, [&]() -> segue::Status {
    if (plan == nullptr) return Null(function, "plan");
    if (sequences < 0) {
      return Invalid(function, "sequences", std::to_string(sequences), "0 or more");
    }
    if (sequences > 0 && rows == nullptr) return Null(function, "rows");
    const size_t entries =
        static_cast<size_t>(sequences) * static_cast<size_t>(plan->plan.settings().max_segments);
    return plan->plan.SetLengths({segue::capi::ReadRows(rows), entries}, workspace, stream);
  });
}

segue_result segue_attention_plan_set_batch(segue_attention_plan* plan,
                                            const segue_attention_batch* batch, void* workspace,
                                            void* stream, segue_error* error) {
  const char* function = __func__;
  return Guard(error, [&]() -> segue::Status {
    if (plan == nullptr) return Null(function, "plan");
    if (batch == nullptr) return Null(function, "batch");
    const segue::attention::Batch& from = batch->batch;
    const int32_t segments = plan->plan.settings().max_segments;
    if (from.segments == segments) return plan->plan.SetLengths(from.rows, workspace, stream);
    if (from.segments > segments) {
      return Invalid(function, "batch",
                     "a sequence of " + std::to_string(from.segments) + " segments",
                     "at most max_segments, " + std::to_string(segments));
    }
    std::vector<segue::attention::SegmentRows> rows(static_cast<size_t>(from.sequences()) *
                                                    segments);
    for (int32_t i = 0; i < from.sequences(); ++i) {
      std::copy_n(from.rows.begin() + int64_t{i} * from.segments, from.segments,
                  rows.begin() + int64_t{i} * segments);
    }
    return plan->plan.SetLengths(rows, workspace, stream);
  });
}

segue_result segue_attention_plan_refresh(segue_attention_plan* plan,
                                          const segue_segment_rows* rows, const int32_t* sequences,
                                          void* workspace, void* stream, segue_error* error) {
  const char* function = __func__;
  return Guard(error, [&]() -> segue::Status {
    if (plan == nullptr) return Null(function, "plan");
    return plan->plan.Refresh(segue::capi::ReadRows(rows), sequences, workspace, stream);
  });
}

segue_result segue_attention_plan_run(const segue_attention_plan* plan,
                                      const segue_attention_run* run, segue_error* error) {
  return Guard(error, [&] { return segue::capi::Run(plan, run); });
}

segue_result segue_attention_plan_read_report(const segue_attention_plan* plan, void* workspace,
                                              void* stream, segue_attention_report* report,
                                              segue_error* error) {
  const char* function = __func__;
  return Guard(error, [&]() -> segue::Status {
    if (plan == nullptr) return Null(function, "plan");
    SEGUE_RETURN_IF_ERROR(segue::capi::CheckStructSize(function, "report", report));
    SEGUE_ASSIGN_OR_RETURN(const segue::attention::LengthsReport found,
                           plan->plan.ReadReport(workspace, stream));
    segue_attention_report result = {
        .struct_size = 0, .error = found.error, .sequence = found.sequence, .description = {}};
    segue::capi::CopyText(found.description, result.description, sizeof(result.description));
    segue::capi::Write(result, report);
    return {};
  });
}
