#include "kernels/cpu/row_ops.h"

#include <algorithm>

namespace segue::kernels::cpu {
namespace {

// Elements of a task: some 10 us of one core, so that waking another one pays.
constexpr int64_t kTaskElements = int64_t{1} << 15;

}  // namespace

void ForRowRanges(const MatrixView& view, ThreadPool& pool,
                  const std::function<void(RowRange rows, float* scratch)>& run) {
  const int64_t rows_per_task =
      std::max<int64_t>(kTaskElements / std::max<int64_t>(view.cols, 1), 1);
  const int64_t tasks = (view.rows + rows_per_task - 1) / rows_per_task;
  const auto body = [&](int64_t task, int worker) {
    const int64_t begin = task * rows_per_task;
    run({begin, std::min(begin + rows_per_task, view.rows)},
        static_cast<float*>(pool.Scratch(worker)));
  };
  pool.ForEach(tasks, std::cref(body));
}

}  // namespace segue::kernels::cpu
