// The index that the device makes against the host's, byte for byte.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "gpu/pack_mirror.h"
#include "kernels/pack_case.h"

namespace segue::kernels {
namespace {

// Runs PackIndex on the device; what differs from `want`, the host's outputs in the same order:
// index, inverse, cu_seqlens, error.
std::string TryIndex(Mirror& mirror, const PackIndexParams& host, const std::vector<Bytes>& inputs,
                     const std::vector<Bytes>& want) {
  std::vector<Bytes> memory = inputs;  // prefix mask, main mask, prefix lengths, main lengths
  for (const Bytes& bytes : want) memory.emplace_back(bytes.size(), 0xa5);
  const int64_t padded = host.batch * (host.prefix.rows + host.main.rows);
  memory.emplace_back(PackIndexScratch(padded) * 4, 0xa5);
  std::string wrong = mirror.Upload(memory);
  if (!wrong.empty()) return wrong;
  const std::vector<void*>& at = mirror.addresses();
  PackIndexParams params = host;
  params.prefix.mask = inputs[0].empty() ? nullptr : at[0];
  params.main.mask = inputs[1].empty() ? nullptr : at[1];
  params.prefix.lengths = inputs[2].empty() ? nullptr : at[2];
  params.main.lengths = inputs[3].empty() ? nullptr : at[3];
  params.index = at[4];
  params.inverse = at[5];
  params.cu_seqlens = static_cast<int32_t*>(at[6]);
  params.error = static_cast<int32_t*>(at[7]);
  params.scratch = static_cast<int32_t*>(at[8]);
  wrong = Text(PackIndex(params, OnGpu()));
  if (wrong.empty()) wrong = Finish();
  if (!wrong.empty()) return wrong;
  memory.resize(8);
  const std::vector<Bytes> all = mirror.Download(memory);
  return FirstDifference({all.begin() + 4, all.end()}, want);
}

// What the CPU gives for the same inputs.
std::vector<Bytes> HostIndex(PackIndexParams params, std::vector<Bytes>& inputs) {
  const size_t size = SizeOf(params.index_type);
  const int64_t padded = params.batch * (params.prefix.rows + params.main.rows);
  std::vector<Bytes> outputs = {Bytes(params.capacity * size), Bytes(padded * size),
                                Bytes((params.batch + 1) * 4), Bytes(4)};
  params.prefix.mask = inputs[0].empty() ? nullptr : inputs[0].data();
  params.main.mask = inputs[1].empty() ? nullptr : inputs[1].data();
  params.prefix.lengths = inputs[2].empty() ? nullptr : inputs[2].data();
  params.main.lengths = inputs[3].empty() ? nullptr : inputs[3].data();
  params.index = outputs[0].data();
  params.inverse = outputs[1].data();
  params.cu_seqlens = reinterpret_cast<int32_t*>(outputs[2].data());
  params.error = reinterpret_cast<int32_t*>(outputs[3].data());
  ThreadPool pool(1);
  const Status status = PackIndex(params, {.stream = Stream::Cpu(pool)});
  EXPECT_TRUE(status.ok()) << Text(status);
  return outputs;
}

TEST(PackGpu, IndexOfMasksIsTheHosts) {
  SEGUE_SKIP_WITHOUT_GPU();
  Mirror mirror(16 << 20);
  const std::pair<int64_t, std::pair<int64_t, int64_t>> shapes[] = {
      {1, {0, 1}},    {1, {0, 31}},    {2, {5, 32}},    {1, {0, 1023}},  {1, {0, 1024}},
      {1, {1, 1024}}, {3, {300, 725}}, {7, {64, 4096}}, {65536, {0, 1}}, {5000, {2, 3}},
      {0, {3, 3}},    {4, {0, 0}},     {2, {100, 0}}};
  for (const auto& [batch, rows] : shapes) {
    for (const MaskPattern pattern : kMaskPatterns) {
      const std::vector<uint8_t> prefix = MakeMask(pattern, batch, rows.first, 3);
      const std::vector<uint8_t> main = MakeMask(pattern, batch, rows.second, 4);
      const DType type = static_cast<int>(pattern) % 2 == 0 ? DType::kI32 : DType::kI64;
      const DType mask_type = type == DType::kI32 ? DType::kU8 : DType::kI32;
      PackIndexParams params{.batch = batch, .index_type = type};
      params.prefix = {.rows = rows.first, .mask_type = mask_type, .mask_stride = rows.first};
      params.main = {.rows = rows.second, .mask_type = mask_type, .mask_stride = rows.second};
      params.capacity = batch * (rows.first + rows.second);
      const auto as_mask = [mask_type](const std::vector<uint8_t>& mask) {
        if (mask_type == DType::kU8) return Bytes(mask);
        return IndexBytes(std::vector<int64_t>(mask.begin(), mask.end()), mask_type);
      };
      std::vector<Bytes> inputs = {as_mask(prefix), as_mask(main), {}, {}};
      ASSERT_EQ(TryIndex(mirror, params, inputs, HostIndex(params, inputs)), "")
          << "batch " << batch << ", rows " << rows.first << " + " << rows.second << ", pattern "
          << static_cast<int>(pattern);
    }
  }
}

TEST(PackGpu, IndexOfLengthsIsTheHosts) {
  SEGUE_SKIP_WITHOUT_GPU();
  Mirror mirror(16 << 20);
  for (const int64_t batch : {1, 3, 700}) {
    std::vector<int64_t> text;
    std::vector<int64_t> image;
    for (int64_t b = 0; b < batch; ++b) {
      text.push_back(b * 37 % 65);
      image.push_back(b % 5 == 0 ? 0 : b * 91 % 301);
    }
    PackIndexParams params{.batch = batch, .capacity = batch * 364};
    params.prefix = {.rows = 64};
    params.main = {.rows = 300, .lengths_type = DType::kI64};
    std::vector<Bytes> inputs = {
        {}, {}, IndexBytes(text, DType::kI32), IndexBytes(image, DType::kI64)};
    ASSERT_EQ(TryIndex(mirror, params, inputs, HostIndex(params, inputs)), "") << batch;
  }
}

// What a host call refuses, the device reports; its outputs stay inside the capacity.
TEST(PackGpu, IndexReportsWhatItCannotRefuse) {
  SEGUE_SKIP_WITHOUT_GPU();
  Mirror mirror(1 << 20);
  const auto want = [](const std::vector<int64_t>& index, const std::vector<int64_t>& inverse,
                       const std::vector<int64_t>& cu_seqlens, int64_t error) {
    return std::vector<Bytes>{IndexBytes(index, DType::kI32), IndexBytes(inverse, DType::kI32),
                              IndexBytes(cu_seqlens, DType::kI32),
                              IndexBytes({error}, DType::kI32)};
  };
  PackIndexParams params{.batch = 2, .capacity = 4};
  params.main = {.rows = 3};
  const auto lengths = [](const std::vector<int64_t>& values) {
    return std::vector<Bytes>{{}, {}, {}, IndexBytes(values, DType::kI32)};
  };
  EXPECT_EQ(TryIndex(mirror, params, lengths({3, 3}),
                     want({0, 1, 2, 3}, {0, 1, 2, 3, -1, -1}, {0, 3, 4}, kPackIndexCapacity)),
            "");
  EXPECT_EQ(TryIndex(mirror, params, lengths({-5, 2}),
                     want({3, 4, -1, -1}, {-1, -1, -1, 0, 1, -1}, {0, 0, 2}, kPackIndexLength)),
            "");
  EXPECT_EQ(TryIndex(mirror, params, lengths({1000, 1}),
                     want({0, 1, 2, 3}, {0, 1, 2, 3, -1, -1}, {0, 3, 4}, kPackIndexLength)),
            "");
}

}  // namespace
}  // namespace segue::kernels
