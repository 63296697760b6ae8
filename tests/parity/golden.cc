#include "parity/golden.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

namespace segue::parity {
namespace {

const std::string kGoldens = std::string(SEGUE_SOURCE_DIR) + "/tests/goldens/";

// The value of a one-element list.
template <typename T>
T Only(const std::vector<T>& values, const std::string& name) {
  if (values.size() != 1) {
    ADD_FAILURE() << name << " has " << values.size() << " elements, wanted 1";
    return T{};
  }
  return values[0];
}

uint64_t SplitMix64(uint64_t z) {
  z = z * 0x9e3779b97f4a7c15u + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

GoldenModel TinyModel() { return {.name = "tiny", .directory = kGoldens + "tiny/model"}; }

GoldenModel EmojiModel() {
  return {.name = "emoji", .directory = std::string(SEGUE_SOURCE_DIR) + "/models/emoji"};
}

Golden::Golden(const std::string& name) : name_(name) {
  auto file = model::TensorFile::Open(kGoldens + name + ".safetensors");
  if (file.ok()) {
    file_ = std::move(file).value();
  } else {
    ADD_FAILURE() << file.error().Message();
  }
}

const model::TensorEntry* Golden::Find(const std::string& name) const {
  const model::TensorEntry* entry = file_ == nullptr ? nullptr : file_->Find(name);
  if (entry == nullptr) ADD_FAILURE() << "golden " << name_ << " has no tensor " << name;
  return entry;
}

bool Golden::Has(const std::string& name) const {
  return file_ != nullptr && file_->Find(name) != nullptr;
}

std::vector<float> Golden::Floats(const std::string& name) const {
  const model::TensorEntry* entry = Find(name);
  if (entry == nullptr) return {};
  auto values = model::ReadFloat32(file_->View(*entry));
  if (!values.ok()) {
    ADD_FAILURE() << values.error().Message();
    return {};
  }
  return std::move(values).value();
}

std::vector<int32_t> Golden::Ints(const std::string& name) const {
  const model::TensorEntry* entry = Find(name);
  if (entry == nullptr) return {};
  if (entry->dtype != DType::kI32) {
    ADD_FAILURE() << name << " is " << entry->dtype_name << ", wanted I32";
    return {};
  }
  std::vector<int32_t> values(static_cast<size_t>(entry->shape.NumElements()));
  const Span<const uint8_t> bytes = file_->Bytes(*entry);
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<uint8_t> Golden::Bytes(const std::string& name) const {
  const model::TensorEntry* entry = Find(name);
  if (entry == nullptr) return {};
  const Span<const uint8_t> bytes = file_->Bytes(*entry);
  return {bytes.begin(), bytes.end()};
}

float Golden::Float(const std::string& name) const { return Only(Floats(name), name); }
int32_t Golden::Int(const std::string& name) const { return Only(Ints(name), name); }

std::vector<std::string> Golden::Texts(const std::string& name) const {
  const std::vector<uint8_t> bytes = Bytes(name + ".bytes");
  const std::vector<int32_t> offsets = Ints(name + ".offsets");
  std::vector<std::string> texts;
  for (size_t i = 1; i < offsets.size(); ++i) {
    texts.emplace_back(bytes.begin() + offsets[i - 1], bytes.begin() + offsets[i]);
  }
  return texts;
}

std::vector<std::vector<int32_t>> Golden::IntLists(const std::string& name) const {
  const std::vector<int32_t> flat = Ints(name);
  const std::vector<int32_t> offsets = Ints(name + ".offsets");
  std::vector<std::vector<int32_t>> lists;
  for (size_t i = 1; i < offsets.size(); ++i) {
    lists.emplace_back(flat.begin() + offsets[i - 1], flat.begin() + offsets[i]);
  }
  return lists;
}

bool Golden::MatchesWeightsOf(const GoldenModel& model) const {
  const std::vector<int32_t> halves = Ints("weights");
  if (halves.size() != 2) return false;
  const uint64_t recorded = static_cast<uint32_t>(halves[0]) |
                            static_cast<uint64_t>(static_cast<uint32_t>(halves[1])) << 32;
  if (recorded == WeightsChecksum(model.directory)) return true;
  ADD_FAILURE() << "golden " << name_ << " was made for other weights than those in "
                << model.directory << "; run tools/make_goldens/make_goldens.py " << model.name;
  return false;
}

std::vector<float> NoiseStream(uint32_t seed, int64_t count) {
  const auto scale = static_cast<float>(std::sqrt(3.0) / 8388608.0);  // 2^23
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = SplitMix64((static_cast<uint64_t>(seed) << 32) + i);
    values[i] = static_cast<float>(static_cast<int64_t>(bits >> 40) - 8388608) * scale;
  }
  return values;
}

uint64_t WeightsChecksum(const std::string& directory) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  uint64_t total = 0;
  uint64_t index = 0;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    std::string data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    data.resize((data.size() + 7) / 8 * 8);
    for (size_t at = 0; at < data.size(); at += 8, ++index) {
      uint64_t word = 0;
      std::memcpy(&word, data.data() + at, 8);
      total += word * (2 * index + 1);
    }
  }
  return total;
}

double RelativeError(Span<const float> got, Span<const float> wanted) {
  if (got.size() != wanted.size() || got.empty()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = static_cast<double>(got[i]) - static_cast<double>(wanted[i]);
    difference += d * d;
    norm += static_cast<double>(wanted[i]) * static_cast<double>(wanted[i]);
  }
  const double error = std::sqrt(difference / norm);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

void ExpectPixelsNear(Span<const uint8_t> got, Span<const uint8_t> wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  ASSERT_FALSE(wanted.empty());
  size_t beyond_one = 0;
  int largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const int difference = std::abs(int{got[i]} - int{wanted[i]});
    beyond_one += difference > 1 ? 1 : 0;
    largest = std::max(largest, difference);
  }
  EXPECT_LE(beyond_one * 1000, got.size()) << "of " << got.size() << " values";
  EXPECT_LE(largest, 3);
}

double Report(const std::string& stage, double error) {
  std::string key = stage;
  std::replace_if(
      key.begin(), key.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
      '_');
  std::ostringstream text;
  text << error;
  testing::Test::RecordProperty(key, text.str());
  if (const char* path = std::getenv("SEGUE_PARITY_REPORT")) {
    std::ofstream(path, std::ios::app) << stage << ": " << text.str() << "\n";
  }
  return error;
}

}  // namespace segue::parity
