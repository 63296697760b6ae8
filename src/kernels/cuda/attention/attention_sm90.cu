// Host side of the sm90 attention kernel: tensor maps and the choice of an instantiation.
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
Result<EncodeTiled> FindEncodeTiled() {
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

struct Tensor {
  const void* data;
  int64_t row_stride;  // elements
  int64_t head_stride;
  int32_t rows;
  int32_t heads;
};

class MapEncoder {
 public:
  MapEncoder(EncodeTiled encode, attention::ElementType type)
      : encode_(encode),
        type_(type == attention::ElementType::kBFloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                        : CU_TENSOR_MAP_DATA_TYPE_FLOAT16) {}

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

  CUresult failure() const { return failure_; }

 private:
  EncodeTiled encode_;
  CUtensorMapDataType type_;
  CUresult failure_ = CUDA_SUCCESS;
};

Status FillParams(const AttentionSm90Params& params, sm90::KernelParams& kernel) {
  Result<EncodeTiled> encode = FindEncodeTiled();
  if (!encode) return encode.error();
  MapEncoder encoder(*encode, params.element_type);
  const int32_t keys = KeyTileOf(params.causal ? 1 : 0);
  for (int32_t i = 0; i < params.source_count; ++i) {
    const AttentionSm90Source& source = params.sources[i];
    sm90::SourceMaps& maps = kernel.maps[i];
    kernel.outputs[i] = {source.o, source.o_row_stride, source.o_head_stride};
    kernel.kv_rows[i] = source.kv_rows;
    if (source.q_rows > 0) {
      const Tensor q{source.q, source.q_row_stride, source.q_head_stride, source.q_rows,
                     params.q_heads};
      encoder.Encode(maps.q, q, kHalfQueryTile);
    }
    if (source.kv_rows > 0) {
      const Tensor k{source.k, source.k_row_stride, source.k_head_stride, source.kv_rows,
                     params.kv_heads};
      const Tensor v{source.v, source.v_row_stride, source.v_head_stride, source.kv_rows,
                     params.kv_heads};
      encoder.Encode(maps.k, k, keys);
      encoder.Encode(maps.k_block, k, sm90::kKeyBlock);
      encoder.Encode(maps.k_group, k, kKeyGroup);
      encoder.Encode(maps.v, v, keys);
      encoder.Encode(maps.v_block, v, sm90::kKeyBlock);
      encoder.Encode(maps.v_group, v, kKeyGroup);
      encoder.Encode(maps.v_row, v, 1);
    }
  }
  if (encoder.failure() != CUDA_SUCCESS) {
    return CudaError("cuTensorMapEncodeTiled",
                     "result " + std::to_string(static_cast<int>(encoder.failure())));
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
  sm90::KernelParams kernel{};
  if (Status filled = FillParams(params, kernel); !filled.ok()) return filled.error();
  const cudaError_t status = Start(params, kernel, static_cast<cudaStream_t>(stream.cuda_stream()));
  if (status != cudaSuccess) return CudaError("launch", cudaGetErrorString(status));
  return {};
}

}  // namespace segue::kernels
