// Attention over segments: the entry point, and the choice of a back end.
#pragma once

#include <string>
#include <string_view>

#include "base/span.h"
#include "kernels/registry.h"
#include "segue/attention.h"
#include "segue/status.h"

namespace segue::attention {

struct Params {
  Options options;
  Span<const Sequence> sequences;
  // [q_heads, total query rows] float32 or null: the natural logarithm of each row's sum of
  // exponentials, rows in the order of the sequences' segments; -infinity where a row sees no key.
  float* lse = nullptr;
  // Of the output. Queries, keys and values arrive rounded; scores and sums stay float32.
  kernels::Rounding rounding = kernels::Rounding::kNone;
  // The only back end to consider, "cpu" or "ref"; empty: the first that accepts.
  std::string backend;
  // Back ends that the model admits; empty: all. A `backend` outside is an error that says so.
  Span<const std::string_view> admitted;
};

// o = softmax(scale * q k^T) v for every sequence and head. A row that sees no key gives zeros.
// The bytes of a sequence's rows depend on that sequence alone, and those of a query row on
// neither its neighbours nor the number of threads.
// Errors: options or segments that contradict themselves; an unknown back end, or one that is not
// admitted; no back end that accepts the parameters (the message has each one's reason).
Status Attention(const Params& params, const kernels::Context& context);

// The name of the back end that Attention runs for these options, whatever the sequences; "" where
// none accepts.
std::string ChosenBackend(const Params& params, const kernels::Context& context);

}  // namespace segue::attention
