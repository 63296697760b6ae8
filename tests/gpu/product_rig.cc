#include "gpu/product_rig.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/cublaslt/comparison.h"

namespace segue::kernels {
namespace {

int64_t YBytes(const ProductForm& form, int64_t rows) {
  return rows * form.n * static_cast<int64_t>(SizeOf(form.y_dtype));
}

// `count` elements of device memory from `first`, widened.
std::vector<double> Widened(const DeviceBytes& memory, int64_t first, int64_t count, DType dtype) {
  const auto size = static_cast<int64_t>(SizeOf(dtype));
  const std::vector<uint8_t> bytes =
      Read(static_cast<const char*>(memory.data()) + first * size, count * size);
  std::vector<double> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == DType::kBF16) {
      values[i] = BF16ToFloat(reinterpret_cast<const uint16_t*>(bytes.data())[i]);
    } else {
      values[i] = reinterpret_cast<const float*>(bytes.data())[i];
    }
  }
  return values;
}

double GeluTanh(double x) {
  return 0.5 * x * (1.0 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

}  // namespace

ProductRig::ProductRig(std::string cache, int64_t workspace, DeviceMemory* scratch) {
  if (const auto traits = CurrentGpuTraits(); !traits) {
    reason = traits.error().Message();
    return;
  }
  workspace_memory = std::make_unique<DeviceBytes>(workspace);
  auto made = ProductLibrary::Create({.cache_directory = std::move(cache),
                                      .workspace = workspace_memory->data(),
                                      .workspace_bytes = workspace,
                                      .memory = scratch == nullptr ? &memory : scratch,
                                      .hot_seconds = 0.02});
  auto on = GpuStream::Create();
  if (!made || !on) {
    reason = made ? on.error().Message() : made.error().Message();
    return;
  }
  products = std::move(made).value();
  stream = std::make_unique<GpuStream>(std::move(on).value());
}

void ProductRig::Multiply(const ProductParams& params) {
  EXPECT_EQ(Text(products->Multiply(params, stream->stream())), "");
  EXPECT_EQ(Text(stream->Synchronize()), "");
}

ProductOperands::ProductOperands(const ProductForm& product_form, int64_t most_rows, uint32_t seed)
    : form(product_form),
      rows(most_rows),
      x(most_rows * form.k * 2),
      weight(form.n * form.k * 2),
      bias(form.n * 2) {
  const Status filled = cublaslt::FillComparison({.x = x.data(),
                                                  .rows = rows,
                                                  .weight = weight.data(),
                                                  .n = form.n,
                                                  .k = form.k,
                                                  .transposed = form.transposed_weight,
                                                  .bias = bias.data(),
                                                  .seed = seed},
                                                 Stream::Cuda(nullptr));
  EXPECT_EQ(Text(filled), "");
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

ProductParams ProductOperands::Params(int64_t count, const DeviceBytes& y) const {
  EXPECT_LE(count, rows);
  EXPECT_EQ(cudaMemset(y.data(), 0xff, static_cast<size_t>(y.bytes())), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ProductParams params{
      .x = {.data = x.data(), .dtype = DType::kBF16, .rows = count, .cols = form.k},
      .weight = {.data = weight.data(), .dtype = DType::kBF16, .shape = {form.n, form.k}},
      .transposed_weight = form.transposed_weight,
      .y = {.data = y.data(), .dtype = form.y_dtype, .rows = count, .cols = form.n},
      .k_splits = form.k_splits,
      .epilogue = form.epilogue};
  params.x.stride = form.k;
  params.y.stride = form.n;
  if (form.transposed_weight) params.weight.shape = {form.k, form.n};
  if (form.bias) params.bias = {.data = bias.data(), .dtype = DType::kBF16, .shape = {form.n}};
  return params;
}

int64_t DifferentElements(const DeviceBytes& wanted, const DeviceBytes& y, const ProductForm& form,
                          int64_t rows) {
  EXPECT_LE(YBytes(form, rows), std::min(wanted.bytes(), y.bytes()));
  DeviceBytes count(sizeof(uint64_t));
  EXPECT_EQ(cudaMemset(count.data(), 0, sizeof(uint64_t)), cudaSuccess);
  const Status counted =
      cublaslt::CountDifferences({.a = wanted.data(),
                                  .a_stride = form.n,
                                  .b = y.data(),
                                  .rows = rows,
                                  .cols = form.n,
                                  .bytes_each = static_cast<int32_t>(SizeOf(form.y_dtype)),
                                  .count = static_cast<uint64_t*>(count.data())},
                                 Stream::Cuda(nullptr));
  EXPECT_EQ(Text(counted), "");
  uint64_t differences = 0;
  EXPECT_EQ(cudaMemcpy(&differences, count.data(), sizeof differences, cudaMemcpyDeviceToHost),
            cudaSuccess);
  return static_cast<int64_t>(differences);
}

void ExpectNearFloat64(const ProductOperands& operands, const DeviceBytes& y, int64_t rows,
                       int64_t step, float scale) {
  const ProductForm& form = operands.form;
  const std::vector<double> bias = Widened(operands.bias, 0, form.n, DType::kBF16);
  const std::vector<double> all_weights =
      form.transposed_weight ? Widened(operands.weight, 0, form.n * form.k, DType::kBF16)
                             : std::vector<double>();
  // Half a unit in the last place of the result.
  const double rounding = form.y_dtype == DType::kBF16 ? 0x1p-8 : 0x1p-24;
  for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
    const std::vector<double> x = Widened(operands.x, row * form.k, form.k, DType::kBF16);
    const std::vector<double> got = Widened(y, row * form.n, form.n, form.y_dtype);
    for (int64_t col = 0; col < form.n; col += step) {
      const std::vector<double> w =
          form.transposed_weight ? std::vector<double>()
                                 : Widened(operands.weight, col * form.k, form.k, DType::kBF16);
      double sum = 0.0;
      double sizes = 0.0;
      for (int64_t i = 0; i < form.k; ++i) {
        const double term = x[i] * (form.transposed_weight ? all_weights[i * form.n + col] : w[i]);
        sum += term;
        sizes += std::abs(term);
      }
      double wanted = sum * scale + (form.bias ? bias[col] : 0.0);
      if (form.epilogue == ProductEpilogue::kGeluTanh) wanted = GeluTanh(wanted);
      // A float32 chain over k / 16 steps of the tensor cores, each off by a unit of its partial
      // sum at most, and partial sums of random terms stay far below the sum of sizes.
      const double error = rounding * 1.01 * std::abs(wanted) + 2e-6 * sizes * scale + 1e-30;
      ASSERT_NEAR(got[col], wanted, error) << form.ToString() << " row " << row << " col " << col;
    }
  }
}

}  // namespace segue::kernels
