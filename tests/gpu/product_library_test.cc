// What a product library promises besides bits: shapes, strides, captures, the cache, errors.
#include "kernels/product_library.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "device/failing_memory.h"
#include "device/gpu_graph.h"
#include "gpu/product_rig.h"
#include "kernels/linear.h"
#include "weights/files.h"

namespace segue::kernels {
namespace {

using segue::testing::TempDirectory;

constexpr ProductForm kOut{.n = 3072, .k = 3072, .bias = true};
constexpr ProductForm kTextDown{.n = 3072, .k = 12288, .k_splits = 2, .bias = true};

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The operation's entry: the same bytes, with the references too, and reasons where it cannot.
TEST(ProductLibraryGpu, ServesLinear) {
  ProductRig rig;
  SEGUE_SKIP_WITHOUT_PRODUCTS(rig);
  const int64_t rows = 14;
  for (const ProductForm& form : {kOut, kTextDown}) {
    const ProductOperands operands(form, rows, FreshSeed());
    const DeviceBytes wanted(rows * form.n * 2);
    const DeviceBytes y(rows * form.n * 2);
    rig.Multiply(operands.Params(rows, wanted));
    for (const bool reference_only : {false, true}) {
      KernelLog log;
      const Context context{.stream = rig.stream->stream(),
                            .log = &log,
                            .reference_only = reference_only,
                            .products = rig.products.get()};
      const ProductParams params = operands.Params(rows, y);
      LinearParams linear{.x = params.x,
                          .weight = params.weight,
                          .bias = params.bias,
                          .y = params.y,
                          .k_splits = form.k_splits};
      ASSERT_EQ(Text(Linear(linear, context)), "");
      ASSERT_EQ(Text(rig.stream->Synchronize()), "");
      EXPECT_EQ(DifferentElements(wanted, y, form, rows), 0);
      EXPECT_EQ(log.Snapshot().at("linear").at(0).kernel, "cublaslt");
      linear.accumulate = true;
      EXPECT_FALSE(Linear(linear, context).ok());
      linear.accumulate = false;
      linear.weight.dtype = DType::kF16;
      EXPECT_FALSE(Linear(linear, context).ok());
    }
  }
}

// Slices of wider matrices on both sides: nothing outside them is written, and the bytes are those
// of contiguous operands.
TEST(ProductLibraryGpu, WritesItsSliceAndNothingElse) {
  ProductRig rig;
  SEGUE_SKIP_WITHOUT_PRODUCTS(rig);
  for (const ProductForm& form : {kOut, kTextDown}) {
    for (const int64_t rows : {int64_t{1}, int64_t{47}, int64_t{300}}) {
      const ProductOperands operands(form, rows, FreshSeed());
      const DeviceBytes wanted(rows * form.n * 2);
      const ProductParams contiguous = operands.Params(rows, wanted);
      rig.Multiply(contiguous);
      // x in columns 8.. of rows of k + 24, y in columns 16.. of n + 40.
      const int64_t x_stride = form.k + 24;
      const int64_t y_stride = form.n + 40;
      const DeviceBytes wide_x(rows * x_stride * 2);  // NaN beside the slice
      const DeviceBytes wide_y(rows * y_stride * 2);
      ASSERT_EQ(
          cudaMemcpy2D(static_cast<uint16_t*>(wide_x.data()) + 8, x_stride * 2, operands.x.data(),
                       form.k * 2, form.k * 2, rows, cudaMemcpyDeviceToDevice),
          cudaSuccess);
      ProductParams params = contiguous;
      params.x.data = static_cast<uint16_t*>(wide_x.data()) + 8;
      params.x.stride = x_stride;
      params.y.data = static_cast<uint16_t*>(wide_y.data()) + 16;
      params.y.stride = y_stride;
      rig.Multiply(params);
      const std::vector<uint8_t> got = Read(wide_y.data(), wide_y.bytes());
      const std::vector<uint8_t> expected = Read(wanted.data(), wanted.bytes());
      for (int64_t row = 0; row < rows; ++row) {
        const uint8_t* line = got.data() + row * y_stride * 2;
        ASSERT_EQ(std::memcmp(line + 32, expected.data() + row * form.n * 2, form.n * 2), 0)
            << form.ToString() << " row " << row;
        for (int64_t i = 0; i < y_stride * 2; ++i) {
          const bool inside = i >= 32 && i < 32 + form.n * 2;
          ASSERT_TRUE(inside || line[i] == 0xff)
              << form.ToString() << " row " << row << " byte " << i;
        }
      }
    }
  }
}

TEST(ProductLibraryGpu, TheBiasComesBeforeTheOnlyRounding) {
  ProductRig rig;
  SEGUE_SKIP_WITHOUT_PRODUCTS(rig);
  const int64_t rows = 20;
  for (ProductForm form : {kOut, kTextDown}) {
    const ProductOperands operands(form, rows, FreshSeed());
    const DeviceBytes y(rows * form.n * 2);
    ProductParams params = operands.Params(rows, y);
    params.scale = 0.0f;  // times 0: the bias, every bit of it
    rig.Multiply(params);
    const std::vector<uint8_t> bias = Read(operands.bias.data(), form.n * 2);
    const std::vector<uint8_t> got = Read(y.data(), y.bytes());
    for (int64_t row = 0; row < rows; ++row) {
      ASSERT_EQ(std::memcmp(got.data() + row * form.n * 2, bias.data(), bias.size()), 0) << row;
    }
    rig.Multiply(operands.Params(rows, y));
    ExpectNearFloat64(operands, y, rows, 32);
    form.bias = false;
    ProductOperands without(form, rows, FreshSeed());
    rig.Multiply(without.Params(rows, y));
    ExpectNearFloat64(without, y, rows, 32);
  }
}

// The forms of an attention that is computed in pieces: scores = scale Q K^T in float32 from
// strided q and k of one packed tensor, then P V with V as it lies there.
TEST(ProductLibraryGpu, MultipliesWithStridedAndTransposedWeights) {
  ProductRig rig;
  SEGUE_SKIP_WITHOUT_PRODUCTS(rig);
  const ProductForm scores{.n = 1024, .k = 384, .y_dtype = DType::kF32};
  const int64_t rows = 256;
  const ProductOperands operands(scores, rows, FreshSeed());
  const DeviceBytes wanted(rows * scores.n * 4);
  ProductParams params = operands.Params(rows, wanted);
  params.scale = 0.051031036f;
  rig.Multiply(params);
  ExpectNearFloat64(operands, wanted, rows, 16, params.scale);
  const int64_t stride = 1152;  // q | k | v
  const DeviceBytes packed(scores.n * stride * 2);
  ASSERT_EQ(
      cudaMemcpy2D(static_cast<uint16_t*>(packed.data()) + 384, stride * 2, operands.weight.data(),
                   384 * 2, 384 * 2, scores.n, cudaMemcpyDeviceToDevice),
      cudaSuccess);
  const DeviceBytes y(rows * scores.n * 4);
  params = operands.Params(rows, y);
  params.scale = 0.051031036f;
  params.weight.data = static_cast<uint16_t*>(packed.data()) + 384;
  params.weight_stride = stride;
  rig.Multiply(params);
  EXPECT_EQ(DifferentElements(wanted, y, scores, rows), 0);

  const ProductForm values{.n = 384, .k = 1024, .transposed_weight = true};
  const ProductOperands second(values, rows, FreshSeed());
  const DeviceBytes o(rows * values.n * 2);
  rig.Multiply(second.Params(rows, o));
  ExpectNearFloat64(second, o, rows, 16);
}

TEST(ProductLibraryGpu, TakesGeluInTheProduct) {
  ProductRig rig;
  SEGUE_SKIP_WITHOUT_PRODUCTS(rig);
  const ProductForm form{.n = 768, .k = 192, .bias = true, .epilogue = ProductEpilogue::kGeluTanh};
  const int64_t rows = 98;
  const ProductOperands operands(form, rows, FreshSeed());
  const DeviceBytes y(rows * form.n * 2);
  rig.Multiply(operands.Params(rows, y));
  // The library's tanh is the hardware's, good to some 2^-11.
  const std::vector<uint8_t> bytes = Read(y.data(), y.bytes());
  EXPECT_NE(bytes, std::vector<uint8_t>(bytes.size(), 0xff));
  ExpectNearFloat64(operands, y, rows, 16);
}

// The operation takes GELU into the product where its chain is rounded once, and nowhere else.
TEST(ProductLibraryGpu, LinearRoundsAProductAndGeluOnce) {
  ProductRig rig;
  SEGUE_SKIP_WITHOUT_PRODUCTS(rig);
  const ProductForm form{.n = 768, .k = 192, .bias = true, .epilogue = ProductEpilogue::kGeluTanh};
  ASSERT_EQ(Text(rig.products->Supports(form)), "");
  for (const int64_t rows : {1, 14, 98, 1024}) {
    const ProductOperands operands(form, rows, FreshSeed());
    const DeviceBytes once(rows * form.n * 2);
    const DeviceBytes wanted(rows * form.n * 2);
    const DeviceBytes steps(rows * form.n * 2);
    rig.Multiply(operands.Params(rows, wanted));
    const auto run = [&](const DeviceBytes& y, Rounding rounding) {
      const ProductParams params = operands.Params(rows, y);
      const Status status =
          Linear({.x = params.x,
                  .weight = params.weight,
                  .bias = params.bias,
                  .y = params.y,
                  .rounding = rounding,
                  .activation = Activation::kGeluTanh},
                 {.stream = rig.stream->stream(), .products = rig.products.get()});
      ASSERT_EQ(Text(status), "");
      ASSERT_EQ(Text(rig.stream->Synchronize()), "");
    };
    run(once, Rounding::kBF16Once);
    run(steps, Rounding::kBF16);
    EXPECT_EQ(DifferentElements(wanted, once, form, rows), 0) << rows;
    EXPECT_GT(DifferentElements(steps, once, form, rows), 0) << rows;
    ExpectNearFloat64(operands, once, rows, 16);
  }
}

// A graph recorded after Warm gives other contents' bytes when it is launched again, and recording
// without a choice works too.
TEST(ProductLibraryGpu, IsCaptured) {
  for (const bool warm : {true, false}) {
    ProductRig rig;
    SEGUE_SKIP_WITHOUT_PRODUCTS(rig);
    const int64_t rows = 64;
    for (const ProductForm& form : {kOut, kTextDown}) {
      const ProductShape shape{.form = form, .rows = rows};
      if (warm) {
        ASSERT_EQ(Text(rig.products->Warm({&shape, 1}, rig.stream->stream())), "");
      }
      const ProductOperands first(form, rows, FreshSeed());
      const ProductOperands second(form, rows, FreshSeed());
      const DeviceBytes y(rows * form.n * 2);
      const DeviceBytes wanted(rows * form.n * 2);
      const ProductParams params = first.Params(rows, y);
      bool refused = false;
      const auto graph = GpuGraph::Capture(*rig.stream, [&]() -> Status {
        const Status choice = rig.products->Warm({&shape, 1}, rig.stream->stream());
        refused = !choice.ok() && choice.error().code == ErrorCode::kInvalidArgument;
        return rig.products->Multiply(params, rig.stream->stream());
      });
      ASSERT_TRUE(graph.ok()) << graph.error().Message();
      EXPECT_TRUE(refused) << "Warm inside a capture";
      EXPECT_EQ(graph->nodes().copies, 0);
      EXPECT_EQ(graph->nodes().kernels, form.k_splits == 1 ? 1 : 2);
      for (const ProductOperands* operands : {&first, &second}) {
        rig.Multiply(operands->Params(rows, wanted));
        ASSERT_EQ(cudaMemcpy(first.x.data(), operands->x.data(), first.x.bytes(),
                             cudaMemcpyDeviceToDevice),
                  cudaSuccess);
        ASSERT_EQ(cudaMemcpy(first.weight.data(), operands->weight.data(), first.weight.bytes(),
                             cudaMemcpyDeviceToDevice),
                  cudaSuccess);
        ASSERT_EQ(cudaMemcpy(first.bias.data(), operands->bias.data(), first.bias.bytes(),
                             cudaMemcpyDeviceToDevice),
                  cudaSuccess);
        ASSERT_EQ(cudaMemset(y.data(), 0xff, y.bytes()), cudaSuccess);
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        ASSERT_EQ(Text(graph->Launch(*rig.stream)), "");
        ASSERT_EQ(Text(rig.stream->Synchronize()), "");
        EXPECT_EQ(DifferentElements(wanted, y, form, rows), 0);
      }
    }
  }
}

// The file decides about time alone: without it, after it was deleted, damaged or filled with
// algorithms of another class, the bytes are the same.
TEST(ProductLibraryGpu, NoCacheChangesAByte) {
  const TempDirectory directory;
  const int64_t rows = 98;
  constexpr int64_t kBucket = 128;
  std::string path;
  const ProductForm forms[] = {kOut, kTextDown};
  std::vector<ProductShape> shapes;
  for (const ProductForm& form : forms) shapes.push_back({.form = form, .rows = rows});
  std::vector<std::unique_ptr<ProductOperands>> operands;
  std::vector<std::unique_ptr<DeviceBytes>> wanted;
  // What a run starts with, and whether it takes its choices from there.
  const auto expect_run = [&](const char* what, bool kept, bool problem) {
    SCOPED_TRACE(what);
    ProductRig rig(directory.path());
    ASSERT_EQ(rig.reason, "");
    path = rig.products->cache_path();
    EXPECT_EQ(!rig.products->cache_problem().empty(), problem) << rig.products->cache_problem();
    ASSERT_EQ(Text(rig.products->Warm(shapes, rig.stream->stream())), "");
    EXPECT_EQ(rig.products->cache_problem(), "");
    const std::vector<ProductLibrary::Choice> choices = rig.products->Choices();
    ASSERT_EQ(choices.size(), shapes.size());
    for (const ProductLibrary::Choice& choice : choices) {
      EXPECT_EQ(choice.kept, kept);
      EXPECT_EQ(choice.rows, kBucket);
      EXPECT_GT(choice.microseconds, 1.0);
      EXPECT_LT(choice.unequal, std::max(choice.candidates, 1));
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      const DeviceBytes y(rows * forms[i].n * 2);
      rig.Multiply(operands[i]->Params(rows, y));
      EXPECT_EQ(DifferentElements(*wanted[i], y, forms[i], rows), 0) << forms[i].ToString();
    }
  };
  {
    ProductRig rig;
    SEGUE_SKIP_WITHOUT_PRODUCTS(rig);
    EXPECT_EQ(rig.products->cache_path(), "");
    for (const ProductForm& form : forms) {
      operands.push_back(std::make_unique<ProductOperands>(form, rows, FreshSeed()));
      wanted.push_back(std::make_unique<DeviceBytes>(rows * form.n * 2));
      rig.Multiply(operands.back()->Params(rows, *wanted.back()));
    }
  }
  expect_run("no file", false, false);
  const std::string written = Contents(path);
  ASSERT_NE(written, "");
  expect_run("the file", true, false);
  EXPECT_EQ(Contents(path), written);
  std::string damaged = written;
  damaged[damaged.size() / 2] ^= 1;
  std::ofstream(path) << damaged;
  expect_run("a damaged file", false, true);
  std::ofstream(path) << written.substr(0, written.size() / 2);
  expect_run("half a file", false, true);
  std::filesystem::remove(path);
  expect_run("a deleted file", false, false);

  // A well-formed file whose algorithms sum in another order: each form has the other's.
  const std::string now = Contents(path);
  const size_t setting_begin = now.find("\nfor ") + 5;
  const std::string setting =
      now.substr(setting_begin, now.find('\n', setting_begin) - setting_begin);
  const auto parsed = ParseProductChoices(setting, now);
  ASSERT_TRUE(parsed.ok()) << parsed.error().Message();
  ProductChoices swapped = *parsed;
  const ProductChoice first = swapped.at({kOut, kBucket});
  swapped[{kOut, kBucket}] = swapped.at({kTextDown, kBucket});
  swapped[{kTextDown, kBucket}] = first;
  ASSERT_EQ(Text(WriteProductChoices(path, FormatProductChoices(setting, swapped))), "");
  expect_run("another class's algorithms", false, false);
}

TEST(ProductLibraryGpu, AFailedAllocationChangesNothing) {
  CudaMemory cuda(0);
  const int64_t rows = 64;
  const ProductOperands* operands = nullptr;
  std::unique_ptr<ProductOperands> owner;
  for (int64_t k = 0;; ++k) {
    FailingMemory memory(cuda, k);
    ProductRig rig("", int64_t{32} << 20, &memory);
    SEGUE_SKIP_WITHOUT_PRODUCTS(rig);
    if (operands == nullptr) {
      owner = std::make_unique<ProductOperands>(kOut, rows, FreshSeed());
      operands = owner.get();
    }
    const DeviceBytes before(rows * kOut.n * 2);
    const DeviceBytes after(rows * kOut.n * 2);
    rig.Multiply(operands->Params(rows, before));
    const ProductShape shape{.form = kOut, .rows = rows};
    const Status status = rig.products->Warm({&shape, 1}, rig.stream->stream());
    EXPECT_EQ(memory.live(), 0);
    EXPECT_EQ(status.ok(), !memory.refused());
    if (!status.ok()) {
      EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
    }
    rig.Multiply(operands->Params(rows, after));
    EXPECT_EQ(DifferentElements(before, after, kOut, rows), 0);
    if (!memory.refused()) break;
  }
}

TEST(ProductLibraryGpu, RefusesWhatItCannotMultiply) {
  ProductRig rig;
  SEGUE_SKIP_WITHOUT_PRODUCTS(rig);
  const ProductOperands operands(kOut, 8, FreshSeed());
  const DeviceBytes y(8 * kOut.n * 2);
  const auto argument = [&](const auto& change) -> std::string {
    ProductParams params = operands.Params(8, y);
    change(params);
    const Status status = rig.products->Multiply(params, rig.stream->stream());
    return status.ok() ? "" : status.error().argument;
  };
  EXPECT_EQ(argument([](ProductParams&) {}), "");
  EXPECT_EQ(argument([](ProductParams& p) { p.x.rows = 7; }), "y");
  EXPECT_EQ(argument([](ProductParams& p) { p.x.rows = -1; }), "x");
  EXPECT_EQ(argument([](ProductParams& p) { p.x.dtype = DType::kF32; }), "x");
  EXPECT_EQ(argument([](ProductParams& p) { p.y.dtype = DType::kF16; }), "y");
  EXPECT_EQ(argument([](ProductParams& p) { p.x.cols = 3064; }), "weight");
  EXPECT_EQ(argument([](ProductParams& p) { p.y.cols = 3071; }), "n");
  EXPECT_EQ(argument([](ProductParams& p) { p.k_splits = 5; }), "k_splits");
  EXPECT_EQ(argument([](ProductParams& p) { p.weight.dtype = DType::kF16; }), "weight");
  EXPECT_EQ(argument([](ProductParams& p) { p.weight_stride = 8; }), "weight_stride");
  EXPECT_EQ(argument([](ProductParams& p) { p.weight_stride = 3076; }), "weight");
  EXPECT_EQ(argument([](ProductParams& p) { p.bias.shape = {1}; }), "bias");
  EXPECT_EQ(argument([](ProductParams& p) { p.x.stride = 3076; }), "x");
  EXPECT_EQ(argument([](ProductParams& p) { p.y.stride = 3064; }), "y");
  EXPECT_EQ(argument([](ProductParams& p) { p.y.data = nullptr; }), "y");
  EXPECT_EQ(argument([](ProductParams& p) {
              p.y.data = static_cast<char*>(p.y.data) + 2;
              p.y.rows = p.x.rows = 1;
            }),
            "y");
  // No rows: nothing to do, nothing needed.
  EXPECT_EQ(argument([](ProductParams& p) {
              p.x.rows = p.y.rows = 0;
              p.x.data = p.y.data = nullptr;
            }),
            "");
  ThreadPool pool(1);
  const Status status = rig.products->Multiply(operands.Params(8, y), Stream::Cpu(pool));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().argument, "stream");
}

}  // namespace
}  // namespace segue::kernels
