// Memory in which algorithms of products are compared and timed, known without a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "base/span.h"
#include "device/arena.h"
#include "kernels/product_choice.h"

namespace segue::kernels {

// Times are taken over copies of the weight that together are more than twice the 50 MB of L2,
// since a weight's turn comes once a forward: it is never there from last time.
inline constexpr int64_t kTimedWeightBytes = int64_t{128} << 20;

// What is chosen for: each form with the buckets of rows that its products run with, in pieces that
// the workspace has room for. Each once, `rows` being the bucket.
std::vector<ProductShape> ProductBuckets(Span<const ProductShape> shapes, int64_t workspace_bytes);

// Operands of any one of the shapes at a time.
struct ProductScratch {
  static ProductScratch LayOut(Arena& arena, Span<const ProductShape> shapes);

  void* x = nullptr;
  void* weight = nullptr;  // copies of it, kTimedWeightBytes or the one
  void* bias = nullptr;
  void* wanted = nullptr;  // y of the reference
  void* got = nullptr;     // y of others
  uint64_t* count = nullptr;
};

// Bytes in which algorithms for all of these are chosen; 0 for none.
int64_t ProductScratchBytes(Span<const ProductShape> buckets);

}  // namespace segue::kernels
