// Host side of the sm90 attention kernel: tensor maps and the choice of an instantiation.
#include <atomic>
#include <string>

#include "kernels/attention_sm90.h"
#include "kernels/cuda/attention/launch.h"

namespace segue::kernels {
namespace {

constexpr char kOperation[] = "attention";

Error CudaError(const char* call, const std::string& got) {
  return {.code = ErrorCode::kUnsupported,
          .operation = kOperation,
          .argument = call,
          .got = got,
          .wanted = "a working CUDA device of compute capability 9.0"};
}

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// From the driver that is loaded already: the library links no driver itself.
Result<EncodeTiled> LookUpEncodeTiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                              12000, cudaEnableDefault, &found);
  if (status != cudaSuccess) return CudaError("cuTensorMapEncodeTiled", cudaGetErrorString(status));
  if (found != cudaDriverEntryPointSuccess) {
    return CudaError("cuTensorMapEncodeTiled", "a driver without it");
  }
  return reinterpret_cast<EncodeTiled>(function);
}

// Looked up once; a failure is looked up again, the driver may come later.
Result<EncodeTiled> FindEncodeTiled() {
  static std::atomic<EncodeTiled> found{nullptr};
  if (const EncodeTiled known = found.load(std::memory_order_relaxed)) return known;
  Result<EncodeTiled> encode = LookUpEncodeTiled();
  if (encode) found.store(*encode, std::memory_order_relaxed);
  return encode;
}

struct Tensor {
  const void* data;
  int64_t row_stride;  // elements
  int64_t head_stride;
  int32_t rows;
  int32_t heads;

  bool operator==(const Tensor&) const = default;
};

// All that a source's maps are made of.
struct MapsKey {
  Tensor q;
  Tensor k;
  Tensor v;
  int32_t keys;  // rows of a key tile
  attention::ElementType element_type;

  bool operator==(const MapsKey&) const = default;
};

MapsKey KeyOf(const AttentionSm90Params& params, const AttentionSm90Source& source) {
  return {
      {source.q, source.q_row_stride, source.q_head_stride, source.q_rows, params.q_heads},
      {source.k, source.k_row_stride, source.k_head_stride, source.kv_rows, params.kv_heads},
      {source.v, source.v_row_stride, source.v_head_stride, source.kv_rows, params.kv_heads},
      KeyTileOf(params.causal ? 1 : 0),
      params.element_type,
  };
}

class MapEncoder {
 public:
  MapEncoder(EncodeTiled encode, attention::ElementType type)
      : encode_(encode),
        type_(type == attention::ElementType::kBFloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                        : CU_TENSOR_MAP_DATA_TYPE_FLOAT16) {}

  CUresult EncodeAll(const MapsKey& key, sm90::SourceMaps& maps) {
    const auto keys = static_cast<uint32_t>(key.keys);
    if (key.q.rows > 0) Encode(maps.q, key.q, kHalfQueryTile);
    if (key.k.rows > 0) {
      Encode(maps.k, key.k, keys);
      Encode(maps.k_block, key.k, sm90::kKeyBlock);
      Encode(maps.k_group, key.k, kKeyGroup);
      Encode(maps.v, key.v, keys);
      Encode(maps.v_block, key.v, sm90::kKeyBlock);
      Encode(maps.v_group, key.v, kKeyGroup);
      Encode(maps.v_row, key.v, 1);
    }
    return failure_;
  }

 private:
  // Dimensions (head_dim, rows, heads); boxes of 64 x box_rows x 1, 128-byte swizzle.
  void Encode(CUtensorMap& map, const Tensor& tensor, uint32_t box_rows) {
    const cuuint64_t sizes[3] = {128, static_cast<cuuint64_t>(tensor.rows),
                                 static_cast<cuuint64_t>(tensor.heads)};
    const cuuint64_t strides[2] = {static_cast<cuuint64_t>(tensor.row_stride) * 2,
                                   static_cast<cuuint64_t>(tensor.head_stride) * 2};
    const cuuint32_t box[3] = {64, box_rows, 1};
    const cuuint32_t steps[3] = {1, 1, 1};
    const CUresult result =
        encode_(&map, type_, 3, const_cast<void*>(tensor.data), sizes, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) failure_ = result;
  }

  EncodeTiled encode_;
  CUtensorMapDataType type_;
  CUresult failure_ = CUDA_SUCCESS;
};

// Maps of the sources that this thread launched last. A map is a value, addresses and sizes and no
// more, so one made for the same key is the same bytes. A model's layers go round a few buffers;
// encoding eight maps takes about as long as the launch.
class RecentMaps {
 public:
  // Null when the driver refuses; `failure` is its result. Valid until the next call.
  const sm90::SourceMaps* Find(EncodeTiled encode, const MapsKey& key, CUresult& failure) {
    for (size_t i = 0; i < used_; ++i) {
      if (keys_[i] == key) return &maps_[i];
    }
    const size_t slot = used_ < kEntries ? used_ : next_++ % kEntries;
    sm90::SourceMaps maps{};
    failure = MapEncoder(encode, key.element_type).EncodeAll(key, maps);
    if (failure != CUDA_SUCCESS) return nullptr;
    if (slot == used_) ++used_;
    keys_[slot] = key;
    maps_[slot] = maps;
    return &maps_[slot];
  }

 private:
  static constexpr size_t kEntries = 16;  // 16 KiB

  MapsKey keys_[kEntries]{};
  sm90::SourceMaps maps_[kEntries]{};
  size_t used_ = 0;
  size_t next_ = 0;
};

Status FillParams(const AttentionSm90Params& params, sm90::KernelParams& kernel) {
  Result<EncodeTiled> encode = FindEncodeTiled();
  if (!encode) return encode.error();
  thread_local RecentMaps recent;
  for (int32_t i = 0; i < params.source_count; ++i) {
    const AttentionSm90Source& source = params.sources[i];
    kernel.outputs[i] = {source.o, source.o_row_stride, source.o_head_stride};
    kernel.kv_rows[i] = source.kv_rows;
    CUresult failure = CUDA_SUCCESS;
    const sm90::SourceMaps* maps = recent.Find(*encode, KeyOf(params, source), failure);
    if (maps == nullptr) {
      return CudaError("cuTensorMapEncodeTiled",
                       "result " + std::to_string(static_cast<int>(failure)));
    }
    kernel.maps[i] = *maps;
  }
  constexpr double kLog2E = 1.4426950408889634;
  kernel.capacity = params.capacity;
  kernel.queries_per_key_head = params.q_heads / params.kv_heads;
  kernel.schedule = static_cast<const uint8_t*>(params.schedule);
  kernel.counters = params.counters;
  kernel.lse = params.lse;
  kernel.lse_stride = params.lse_stride;
  kernel.scale_log2 = static_cast<float>(params.softmax_scale * kLog2E);
  return {};
}

cudaError_t Start(const AttentionSm90Params& params, const sm90::KernelParams& kernel,
                  cudaStream_t stream) {
  using sm90::Config;
  const bool bfloat16 = params.element_type == attention::ElementType::kBFloat16;
  if (bfloat16 && params.causal) {
    return sm90::Launch<Config<device::BFloat16, true>>(kernel, params.ctas, stream);
  }
  if (bfloat16) return sm90::Launch<Config<device::BFloat16, false>>(kernel, params.ctas, stream);
  if (params.causal) {
    return sm90::Launch<Config<device::Float16, true>>(kernel, params.ctas, stream);
  }
  return sm90::Launch<Config<device::Float16, false>>(kernel, params.ctas, stream);
}

}  // namespace

Result<int32_t> AttentionSm90Ctas() {
  int current = 0;
  int values[3] = {0, 0, 0};  // compute capability, multiprocessors
  cudaError_t status = cudaGetDevice(&current);
  const cudaDeviceAttr attributes[3] = {cudaDevAttrComputeCapabilityMajor,
                                        cudaDevAttrComputeCapabilityMinor,
                                        cudaDevAttrMultiProcessorCount};
  for (int i = 0; i < 3 && status == cudaSuccess; ++i) {
    status = cudaDeviceGetAttribute(&values[i], attributes[i], current);
  }
  if (status != cudaSuccess) return CudaError("query the device", cudaGetErrorString(status));
  if (values[0] != 9 || values[1] != 0) {
    return CudaError("compute capability",
                     std::to_string(values[0]) + "." + std::to_string(values[1]));
  }
  return values[2];
}

Status AttentionSm90(const AttentionSm90Params& params, const Stream& stream) {
  const char* reason = AttentionSm90Rejects(params);
  if (reason != nullptr) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = kOperation,
                 .argument = "sm90",
                 .got = reason,
                 .wanted = "parameters that this back end accepts"};
  }
  sm90::KernelParams kernel;  // 8 KiB; maps of sources that there are none of stay unset
  if (Status filled = FillParams(params, kernel); !filled.ok()) return filled.error();
  const cudaError_t status = Start(params, kernel, static_cast<cudaStream_t>(stream.cuda_stream()));
  if (status != cudaSuccess) return CudaError("launch", cudaGetErrorString(status));
  return {};
}

}  // namespace segue::kernels
