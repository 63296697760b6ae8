// Reading tests/goldens and judging by it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "base/span.h"
#include "model/weights/tensor_file.h"

namespace segue::parity {

// Bounds of docs/parity.md: relative L2 errors of one stage fed the reference's own input, and of
// the latents after 20 steps from the same noise.
inline constexpr double kStageBound = 2e-5;
inline constexpr double kTwentyStepBound = 1e-4;

// A checkpoint with goldens: "tiny" or "emoji".
struct GoldenModel {
  std::string name;
  std::string directory;  // the checkpoint
};
GoldenModel TinyModel();
GoldenModel EmojiModel();
inline std::vector<GoldenModel> Models() { return {TinyModel(), EmojiModel()}; }
// For parameterised tests: the name in a test's name and in messages.
inline std::string ModelName(const testing::TestParamInfo<GoldenModel>& parameter) {
  return parameter.param.name;
}
inline void PrintTo(const GoldenModel& model, std::ostream* stream) { *stream << model.name; }

// One golden file, tests/goldens/<name>.safetensors. A missing file or tensor is a failure of the
// running test and gives empty values.
class Golden {
 public:
  explicit Golden(const std::string& name);

  std::vector<float> Floats(const std::string& name) const;  // float32 or bfloat16 tensors
  std::vector<int32_t> Ints(const std::string& name) const;
  std::vector<uint8_t> Bytes(const std::string& name) const;
  float Float(const std::string& name) const;
  int32_t Int(const std::string& name) const;
  bool Has(const std::string& name) const;

  // Lists the generator wrote end to end with offsets (golden_files.py).
  std::vector<std::string> Texts(const std::string& name) const;
  std::vector<std::vector<int32_t>> IntLists(const std::string& name) const;

  // Whether the file was made for the weights in `model`'s directory; a failure says what to do.
  bool MatchesWeightsOf(const GoldenModel& model) const;

 private:
  const model::TensorEntry* Find(const std::string& name) const;

  std::string name_;
  std::unique_ptr<const model::TensorFile> file_;
};

// noise.py: uniform values of variance 1 that both sides compute.
std::vector<float> NoiseStream(uint32_t seed, int64_t count);

// golden_files.py: weights_checksum.
uint64_t WeightsChecksum(const std::string& directory);

// |got - wanted| / |wanted| in L2 norms, summed in float64; infinity when sizes differ, when one
// is empty, or when anything is not finite.
double RelativeError(Span<const float> got, Span<const float> wanted);

// Fails the running test unless 99.9 % of the 8-bit values differ by at most 1 and none by more
// than 3.
void ExpectPixelsNear(Span<const uint8_t> got, Span<const uint8_t> wanted);

// Adds "<stage> <error>" to the running test's recorded properties and, when the environment
// variable SEGUE_PARITY_REPORT names a file, as a line to that file; returns the error.
double Report(const std::string& stage, double error);

}  // namespace segue::parity
