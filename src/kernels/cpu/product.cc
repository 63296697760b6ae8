#include "kernels/cpu/linear_cpu.h"

#include <functional>

namespace segue::kernels::cpu {
namespace {

Status RunLinear(const LinearCode& code, const LinearParams& params, const Context& context) {
  if (params.y.rows == 0 || params.y.cols == 0) return {};
  ThreadPool& pool = context.stream.pool();
  const ProductShape shape = {.rows = params.y.rows, .cols = params.y.cols, .depth = params.x.cols};
  const ProductBlocks blocks = ChooseBlocks(shape, code.limits, pool.threads());
  const auto body = [&](int64_t task, int worker) {
    code.run_task(params, blocks, task, pool.Scratch(worker));
  };
  pool.ForEach(blocks.tasks(), std::cref(body));
  return {};
}

}  // namespace

Status LinearAvx2(const LinearParams& params, const Context& context) {
  return RunLinear(kLinearAvx2, params, context);
}

Status LinearAvx512(const LinearParams& params, const Context& context) {
  return RunLinear(kLinearAvx512, params, context);
}

}  // namespace segue::kernels::cpu
