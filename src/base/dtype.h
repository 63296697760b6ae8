// Element types of tensors and the conversions between them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace segue {

enum class DType : uint8_t { kF32, kF16, kBF16, kI64, kI32, kU8 };

// Bytes of one element.
constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

// The name safetensors uses: "F32", "F16", "BF16", "I64", "I32", "U8".
constexpr const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI64:
      return "I64";
    case DType::kI32:
      return "I32";
    case DType::kU8:
      return "U8";
  }
  return "?";
}

// bfloat16 is the upper half of a float32, so widening is a shift.
inline float BF16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Round to nearest, ties to even; a NaN stays a (quiet) NaN instead of rounding up to infinity.
inline uint16_t FloatToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// bf(x) of the specifications: the float32 nearest to x among the bfloat16 values.
inline float RoundToBF16(float value) { return BF16ToFloat(FloatToBF16(value)); }

// IEEE binary16, subnormals included.
float F16ToFloat(uint16_t bits);
uint16_t FloatToF16(float value);

}  // namespace segue
