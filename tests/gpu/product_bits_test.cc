// Each weight has one bit class: a row's bytes do not depend on the number of rows, on which
// algorithm was chosen, or on how a weight is cut.
#include <gtest/gtest.h>

#include <vector>

#include "gpu/product_rig.h"

namespace segue::kernels {
namespace {

constexpr int64_t kMostRows = 8192;
constexpr int64_t kRows[] = {1, 6, 14, 20, 47, 64, 98, 128, 256, 1024, 4096, 6889, 8192};

ProductForm Form(int64_t n, int64_t k, bool few_rows = false) {
  return {.n = n, .k = k, .k_splits = few_rows ? FewRowSplits(n, k) : 1, .bias = true};
}

// Expects every number of rows to give the bytes of the reference at 8192 rows.
void ExpectOneClass(ProductRig& rig, const ProductForm& form) {
  SCOPED_TRACE(form.ToString());
  const ProductOperands operands(form, kMostRows, FreshSeed());
  const int64_t bytes = kMostRows * form.n * static_cast<int64_t>(SizeOf(form.y_dtype));
  const DeviceBytes wanted(bytes);
  const DeviceBytes y(bytes);
  rig.Multiply(operands.Params(kMostRows, wanted));  // nothing is chosen yet: the reference
  ExpectNearFloat64(operands, wanted, kMostRows, form.n / 16);
  // Without a choice, then with one.
  for (const bool warm : {false, true}) {
    std::vector<ProductShape> shapes;
    for (const int64_t rows : kRows) shapes.push_back({.form = form, .rows = rows});
    if (warm) {
      ASSERT_EQ(Text(rig.products->Warm(shapes, rig.stream->stream())), "");
    }
    for (const int64_t rows : kRows) {
      rig.Multiply(operands.Params(rows, y));
      EXPECT_EQ(DifferentElements(wanted, y, form, rows), 0)
          << rows << " rows, " << (warm ? "chosen" : "reference");
    }
  }
}

class ProductSiteGpu : public ::testing::TestWithParam<ProductForm> {};

TEST_P(ProductSiteGpu, DoNotDependOnTheNumberOfRows) {
  ProductRig rig;
  SEGUE_SKIP_WITHOUT_PRODUCTS(rig);
  ExpectOneClass(rig, GetParam());
}

std::string NameOf(const ::testing::TestParamInfo<ProductForm>& info) {
  std::string name;
  for (const char c : info.param.ToString()) {
    if (c != ' ') name += c;
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Dit, ProductSiteGpu,
                         ::testing::Values(Form(9216, 3072), Form(3072, 3072), Form(12288, 3072),
                                           Form(3072, 12288), Form(3072, 12288, true),
                                           Form(18432, 3072), Form(6144, 3072), Form(64, 3072),
                                           Form(3072, 64), Form(3072, 3584), Form(3072, 256)),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(TextEncoder, ProductSiteGpu,
                         ::testing::Values(Form(4608, 3584), Form(3584, 3584), Form(512, 3584),
                                           Form(18944, 3584), Form(3584, 18944),
                                           Form(3584, 18944, true)),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(Emoji, ProductSiteGpu,
                         ::testing::Values(Form(576, 192), Form(192, 192), Form(768, 192),
                                           Form(192, 768), Form(1152, 192), Form(384, 192),
                                           Form(64, 192), Form(192, 64), Form(192, 256),
                                           Form(320, 192), Form(512, 192), Form(192, 512)),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(
    Others, ProductSiteGpu,
    ::testing::Values(
        ProductForm{.n = 12288, .k = 3072, .bias = true, .epilogue = ProductEpilogue::kGeluTanh},
        ProductForm{.n = 18944, .k = 3584},                            // without bias
        ProductForm{.n = 3072, .k = 12288, .k_splits = 4},             // another class
        ProductForm{.n = 4096, .k = 384, .y_dtype = DType::kF32},      // scores
        ProductForm{.n = 384, .k = 4096, .transposed_weight = true}),  // times V
    NameOf);

// The comparison that everything here rests on sees the order: two classes differ in nearly every
// element of the rows whose terms cancel.
TEST(ProductBitsGpu, OperandsShowTheOrder) {
  ProductRig rig;
  SEGUE_SKIP_WITHOUT_PRODUCTS(rig);
  for (const int64_t k : {int64_t{3072}, int64_t{12288}}) {
    const ProductForm one{.n = 3072, .k = k};
    const int64_t rows = 64;
    const ProductOperands operands(one, rows, FreshSeed());
    const DeviceBytes whole(rows * one.n * 2);
    const DeviceBytes pieces(rows * one.n * 2);
    rig.Multiply(operands.Params(rows, whole));
    ProductParams params = operands.Params(rows, pieces);
    params.k_splits = 2;
    rig.Multiply(params);
    // Half of the rows cancel.
    EXPECT_GT(DifferentElements(whole, pieces, one, rows), rows * one.n * 45 / 100) << k;
  }
}

// What makes one product of three: q, k and v of the DiT's streams and of the text encoder.
TEST(ProductBitsGpu, APackedWeightGivesTheBytesOfItsParts) {
  ProductRig rig;
  SEGUE_SKIP_WITHOUT_PRODUCTS(rig);
  const std::vector<std::pair<int64_t, std::vector<int64_t>>> packed = {{3072, {3072, 3072, 3072}},
                                                                        {3584, {3584, 512, 512}},
                                                                        {192, {192, 192, 192}},
                                                                        {192, {192, 64, 64}},
                                                                        {3584, {18944, 18944}}};
  for (const auto& [k, parts] : packed) {
    const auto same =
        rig.products->PackedEqualsParts({.k = k, .bias = true}, parts, rig.stream->stream());
    ASSERT_TRUE(same.ok()) << same.error().Message();
    EXPECT_TRUE(*same) << k;
    // The same by hand, on slices of the packed product's own operands.
    ProductForm form{.k = k, .bias = true};
    for (const int64_t n : parts) form.n += n;
    const int64_t rows = 98;
    const ProductOperands operands(form, rows, FreshSeed());
    const DeviceBytes whole(rows * form.n * 2);
    const DeviceBytes sliced(rows * form.n * 2);
    rig.Multiply(operands.Params(rows, whole));
    int64_t first = 0;
    const ProductParams all = operands.Params(rows, sliced);
    for (const int64_t n : parts) {
      ProductParams part = all;
      part.weight.data = static_cast<const uint16_t*>(all.weight.data) + first * k;
      part.weight.shape = {n, k};
      part.bias = {.data = static_cast<const uint16_t*>(all.bias.data) + first,
                   .dtype = DType::kBF16,
                   .shape = {n}};
      part.y = all.y.Cols(first, n);
      rig.Multiply(part);
      first += n;
    }
    EXPECT_EQ(DifferentElements(whole, sliced, form, rows), 0) << k;
  }
}

// A class of several pieces needs room for their sums; more rows than fit run one after another.
TEST(ProductBitsGpu, DoNotDependOnTheWorkspace) {
  ProductRig large;
  SEGUE_SKIP_WITHOUT_PRODUCTS(large);
  const ProductForm form{.n = 3072, .k = 12288, .k_splits = 2, .bias = true};
  const int64_t rows = 1500;
  const ProductOperands operands(form, rows, FreshSeed());
  const DeviceBytes wanted(rows * form.n * 2);
  const DeviceBytes y(rows * form.n * 2);
  large.Multiply(operands.Params(rows, wanted));
  ExpectNearFloat64(operands, wanted, rows, 64);
  for (const int64_t workspace : {int64_t{8} << 20, int64_t{1} << 20, int64_t{500} << 10}) {
    ProductRig small("", workspace);
    for (const bool warm : {false, true}) {
      const ProductShape shape{.form = form, .rows = rows};
      if (warm) {
        ASSERT_EQ(Text(small.products->Warm({&shape, 1}, small.stream->stream())), "");
      }
      small.Multiply(operands.Params(rows, y));
      EXPECT_EQ(DifferentElements(wanted, y, form, rows), 0) << workspace;
    }
  }
  ProductRig none("", 4096);
  const Status status = none.products->Multiply(operands.Params(rows, y), none.stream->stream());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace segue::kernels
