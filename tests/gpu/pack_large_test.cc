#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "gpu/pack_mirror.h"
#include "kernels/pack.h"

namespace segue::kernels {
namespace {

// 150,000 rows of 16,384 elements: 2.46e9 elements, 4.9e9 bytes, so that offsets pass 2^31 elements
// and 2^32 bytes on both sides.
TEST(PackGpu, MoreElementsThan32BitsCount) {
  SEGUE_SKIP_WITHOUT_GPU();
  constexpr int64_t kRows = 150000;
  constexpr int64_t kWidth = 16384;
  constexpr int64_t kRowBytes = kWidth * 2;
  GpuMemory padded(kRows * kRowBytes);
  GpuMemory packed(kRows * kRowBytes);
  ASSERT_NE(padded.data(), nullptr);
  ASSERT_NE(packed.data(), nullptr);
  ASSERT_EQ(cudaMemset(padded.data(), 0x11, kRows * kRowBytes), cudaSuccess);
  ASSERT_EQ(cudaMemset(packed.data(), 0x22, kRows * kRowBytes), cudaSuccess);
  // Rows before and behind offsets of 2^31 bytes, 2^32 bytes and 2^31 elements, and the ends.
  const int64_t rows[] = {0, 65535, 65536, 131071, 131072, 131073, kRows - 1};
  const auto contents = [](int64_t row) {
    std::vector<uint32_t> values(kRowBytes / 4);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<uint32_t>(row * 2654435761u + i);
    }
    return values;
  };
  const auto at = [](const GpuMemory& memory, int64_t row) {
    return static_cast<char*>(memory.data()) + row * kRowBytes;
  };
  for (const int64_t row : rows) {
    cudaMemcpy(at(padded, row), contents(row).data(), kRowBytes, cudaMemcpyHostToDevice);
  }
  std::vector<int32_t> reversed(kRows);
  for (int64_t t = 0; t < kRows; ++t) reversed[t] = static_cast<int32_t>(kRows - 1 - t);
  GpuMemory index(kRows * 4);
  index.Write(reversed.data());
  PackParams params{.tensor_count = 1,
                    .batch = 1,
                    .main_rows = kRows,
                    .index = index.data(),
                    .inverse = index.data(),
                    .packed_rows = kRows};
  params.tensors[0] = {.main = {padded.data(), kWidth},
                       .packed = packed.data(),
                       .packed_row_stride = kWidth,
                       .row_elements = kWidth};
  const auto expect_row = [&](const GpuMemory& memory, int64_t row, int64_t source) {
    std::vector<uint32_t> got(kRowBytes / 4);
    cudaMemcpy(got.data(), at(memory, row), kRowBytes, cudaMemcpyDeviceToHost);
    EXPECT_TRUE(got == contents(source)) << "row " << row << " of row " << source;
  };
  ASSERT_EQ(Text(PackRows(params, OnGpu())), "");
  ASSERT_EQ(Finish(), "");
  for (const int64_t row : rows) expect_row(packed, kRows - 1 - row, row);
  ASSERT_EQ(cudaMemset(padded.data(), 0x33, kRows * kRowBytes), cudaSuccess);
  ASSERT_EQ(Text(ScatterRows(params, OnGpu())), "");
  ASSERT_EQ(Finish(), "");
  for (const int64_t row : rows) expect_row(padded, row, row);
}

}  // namespace
}  // namespace segue::kernels
