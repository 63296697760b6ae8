// What the files of the C API share: the handles, and the ways in and out for structs and errors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "segue/attention_adapters.h"
#include "segue/attention_plan.h"
#include "segue/segue.h"
#include "segue/status.h"

// NOLINTBEGIN(readability-identifier-naming): the header's names
struct segue_attention_batch {
  segue::attention::Batch batch;
  // The same in C's structs.
  std::vector<segue_tensor_set> tensors;
  std::vector<segue_segment_rows> rows;
};

struct segue_attention_plan {
  segue::attention::Plan plan;
};
// NOLINTEND(readability-identifier-naming)

namespace segue::capi {

inline Error Invalid(const char* function, std::string argument, std::string got,
                     std::string wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = function,
          .argument = std::move(argument),
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

inline Error Null(const char* function, std::string argument) {
  return Invalid(function, std::move(argument), "NULL", "a pointer");
}

// Fills in what the caller gave for it, nothing when that is null or too small for a message.
segue_result Report(segue_error* error, segue_result result, const std::string& message);
segue_result Report(segue_error* error, const Status& status);

// Runs `body`, which returns a Status; exceptions end here.
template <typename Body>
segue_result Guard(segue_error* error, const Body& body) noexcept {
  try {
    return Report(error, body());
  } catch (const std::bad_alloc&) {
    return Report(error, SEGUE_OUT_OF_MEMORY, {});
  } catch (...) {
    return Report(error, SEGUE_INTERNAL, {});
  }
}

// Bytes of a struct in ABI version 1. A struct that grows gets a specialisation with its old size.
template <typename Struct>
inline constexpr size_t kFirstSize = sizeof(Struct);

template <typename Struct>
Status CheckStructSize(const char* function, const char* name, const Struct* given) {
  if (given == nullptr) return Null(function, name);
  if (given->struct_size >= kFirstSize<Struct>) return {};
  return Invalid(function, std::string(name) + ".struct_size", std::to_string(given->struct_size),
                 "at least " + std::to_string(kFirstSize<Struct>));
}

// A caller's struct as this library knows it: fields that an older caller lacks are 0; fields that
// only a newer caller knows have to be.
template <typename Struct>
Result<Struct> Read(const char* function, const char* name, const Struct* given) {
  SEGUE_RETURN_IF_ERROR(CheckStructSize(function, name, given));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  const size_t size = given->struct_size;
  for (size_t i = sizeof(Struct); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return Error{.code = ErrorCode::kUnsupported,
                 .operation = function,
                 .argument = name,
                 .got = "a field at byte " + std::to_string(i) + " that this library does not know",
                 .wanted = "0 there"};
  }
  Struct read{};
  std::memcpy(&read, bytes, std::min(size, sizeof(Struct)));
  return read;
}

// The other way: as much as the caller has room for. Precondition: CheckStructSize.
template <typename Struct>
void Write(Struct value, Struct* to) {
  value.struct_size = to->struct_size;
  std::memcpy(to, &value, std::min(size_t{to->struct_size}, sizeof(Struct)));
}

// `text` cut to `size` bytes with its terminator.
void CopyText(const std::string& text, char* to, size_t size);

Result<attention::Options> ReadOptions(const char* function,
                                       const segue_attention_options* options);

inline attention::RowsView ReadView(const segue_rows_view& view) {
  return {.data = view.data, .row_stride = view.row_stride, .head_stride = view.head_stride};
}

// Rows in memory of either place, as the engine spells them.
static_assert(sizeof(segue_segment_rows) == sizeof(attention::SegmentRows));
static_assert(offsetof(segue_segment_rows, source) == offsetof(attention::SegmentRows, source));
static_assert(offsetof(segue_segment_rows, q_begin) == offsetof(attention::SegmentRows, q_begin));
static_assert(offsetof(segue_segment_rows, q_rows) == offsetof(attention::SegmentRows, q_rows));
static_assert(offsetof(segue_segment_rows, kv_begin) == offsetof(attention::SegmentRows, kv_begin));
static_assert(offsetof(segue_segment_rows, kv_rows) == offsetof(attention::SegmentRows, kv_rows));
inline const attention::SegmentRows* ReadRows(const segue_segment_rows* rows) {
  return reinterpret_cast<const attention::SegmentRows*>(rows);
}

}  // namespace segue::capi
