#include "kernels/product_scratch.h"

#include <algorithm>

namespace segue::kernels {

std::vector<ProductShape> ProductBuckets(Span<const ProductShape> shapes, int64_t workspace_bytes) {
  std::vector<ProductShape> buckets;
  buckets.reserve(2 * shapes.size());
  const auto add = [&buckets](const ProductForm& form, int64_t rows) {
    const ProductShape bucket = {.form = form, .rows = ProductRowBucket(rows)};
    if (std::find(buckets.begin(), buckets.end(), bucket) == buckets.end()) {
      buckets.push_back(bucket);
    }
  };
  for (const ProductShape& shape : shapes) {
    if (shape.rows <= 0) continue;
    const int64_t at_once = std::max<int64_t>(ProductRowsAtOnce(shape.form, workspace_bytes), 16);
    if (shape.rows >= at_once) add(shape.form, at_once);
    if (shape.rows % at_once != 0) add(shape.form, shape.rows % at_once);
  }
  return buckets;
}

ProductScratch ProductScratch::LayOut(Arena& arena, Span<const ProductShape> shapes) {
  int64_t x = 0;
  int64_t weight = 0;
  int64_t bias = 0;
  int64_t y = 0;
  for (const auto& [form, rows] : shapes) {
    x = std::max(x, rows * form.k * 2);
    weight = std::max({weight, kTimedWeightBytes, form.n * form.k * 2});
    bias = std::max(bias, form.n * 2);
    y = std::max(y, rows * form.n * static_cast<int64_t>(SizeOf(form.y_dtype)));
  }
  ProductScratch scratch;
  scratch.x = arena.TakeBytes("x of a product to choose", x);
  scratch.weight = arena.TakeBytes("its weights", weight);
  scratch.bias = arena.TakeBytes("its bias", bias);
  scratch.wanted = arena.TakeBytes("the reference's y", y);
  scratch.got = arena.TakeBytes("y", y);
  scratch.count = arena.Take<uint64_t>("differences", 1);
  return scratch;
}

int64_t ProductScratchBytes(Span<const ProductShape> buckets) {
  if (buckets.empty()) return 0;
  Arena arena;
  ProductScratch::LayOut(arena, buckets);
  return arena.peak_bytes();
}

}  // namespace segue::kernels
