#include "kernels/cpu/pack_rows.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"

namespace segue::kernels::cpu {
namespace {

// Bytes a task moves: a few microseconds of work, which is many times what handing it out costs.
constexpr int64_t kTaskBytes = 128 << 10;

// Calls move(tensor, row, bytes of a row) for every tensor and every row below `rows`.
template <typename Move>
void ForRows(const PackParams& params, const Context& context, int64_t rows, const Move& move) {
  const auto size = static_cast<int64_t>(SizeOf(params.element_type));
  int64_t widest = 1;
  for (int32_t i = 0; i < params.tensor_count; ++i) {
    widest = std::max(widest, params.tensors[i].row_elements * size);
  }
  const int64_t rows_a_task = std::max<int64_t>(1, kTaskBytes / widest);
  const int64_t tasks_a_tensor = (rows + rows_a_task - 1) / rows_a_task;
  context.stream.pool().ForEach(
      params.tensor_count * tasks_a_tensor, [&](int64_t task, int /*worker*/) {
        const PackTensor& tensor = params.tensors[task / tasks_a_tensor];
        const int64_t begin = task % tasks_a_tensor * rows_a_task;
        const int64_t end = std::min(begin + rows_a_task, rows);
        const auto bytes = static_cast<size_t>(tensor.row_elements * size);
        for (int64_t row = begin; row < end; ++row) move(tensor, row, bytes);
      });
}

}  // namespace

Status CopyBytes(const CopyParams& params, const Context& context) {
  const int64_t tasks = (params.bytes + kTaskBytes - 1) / kTaskBytes;
  context.stream.pool().ForEach(tasks, [&](int64_t task, int /*worker*/) {
    const int64_t begin = task * kTaskBytes;
    std::memcpy(static_cast<char*>(params.to) + begin,
                static_cast<const char*>(params.from) + begin,
                static_cast<size_t>(std::min(kTaskBytes, params.bytes - begin)));
  });
  return {};
}

Status PackRows(const PackParams& params, const Context& context) {
  const int64_t rows = params.packed_count == nullptr ? params.packed_rows : *params.packed_count;
  ForRows(params, context, rows, [&](const PackTensor& tensor, int64_t row, size_t bytes) {
    const int64_t padded = IndexAt(params.index, params.index_type, row);
    std::memcpy(PackedRow(params, tensor, row), PaddedRow(params, tensor, padded), bytes);
  });
  return {};
}

Status ScatterRows(const PackParams& params, const Context& context) {
  const int64_t rows = params.batch * (params.prefix_rows + params.main_rows);
  ForRows(params, context, rows, [&](const PackTensor& tensor, int64_t row, size_t bytes) {
    const int64_t packed = IndexAt(params.inverse, params.index_type, row);
    char* to = PaddedRow(params, tensor, row);
    if (packed < 0) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, PackedRow(params, tensor, packed), bytes);
    }
  });
  return {};
}

}  // namespace segue::kernels::cpu
