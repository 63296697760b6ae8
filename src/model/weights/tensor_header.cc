#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <tuple>

#include "model/weights/json.h"
#include "model/weights/tensor_file.h"

namespace segue::model {
namespace {

constexpr const char* kOperation = "read safetensors header";
// The reference library's own bound. The header of 1,933 tensors takes 0.25 MB.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr int64_t kLengthBytes = 8;

struct DTypeRow {
  const char* name;
  int bits;
  std::optional<DType> dtype;
};

// Every element type of the format; those without a DType are carried but not computed with.
constexpr std::array<DTypeRow, 22> kDTypes = {{
    {"F32", 32, DType::kF32},         {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},       {"I64", 64, DType::kI64},
    {"I32", 32, DType::kI32},         {"U8", 8, DType::kU8},
    {"BOOL", 8, std::nullopt},        {"I8", 8, std::nullopt},
    {"I16", 16, std::nullopt},        {"U16", 16, std::nullopt},
    {"U32", 32, std::nullopt},        {"U64", 64, std::nullopt},
    {"F64", 64, std::nullopt},        {"C64", 64, std::nullopt},
    {"F8_E5M2", 8, std::nullopt},     {"F8_E4M3", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt}, {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},     {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},     {"F4", 4, std::nullopt},
}};

Error Corrupt(const std::string& where, std::string got, std::string wanted) {
  return Error{ErrorCode::kCorrupt, kOperation, where, std::move(got), std::move(wanted)};
}

std::string Bytes(uint64_t count) { return std::to_string(count) + " bytes"; }

bool StartsWithNoCase(std::string_view text, std::string_view prefix) {
  if (text.size() < prefix.size()) return false;
  for (size_t i = 0; i < prefix.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(text[i])) != prefix[i]) return false;
  }
  return true;
}

// What a file that cannot be a safetensors file looks like, or empty.
std::string Impostor(std::string_view text) {
  if (StartsWithNoCase(text, "version https://git-lfs")) {
    return "a Git LFS pointer (run `git lfs pull` to get the weights)";
  }
  if (StartsWithNoCase(text, "pk\x03\x04")) return "a zip archive, as PyTorch's .bin files are";
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  for (std::string_view tag : {"<!doctype", "<html", "<head", "<body", "<?xml"}) {
    if (StartsWithNoCase(text, tag)) return "a web page (an error page saved in its place?)";
  }
  return "";
}

// The header's length, after the checks that need no more than that.
Result<uint64_t> HeaderBytes(std::string_view file, const std::string& path) {
  uint64_t length = 0;
  const bool has_length = file.size() >= kLengthBytes;
  for (int i = 0; has_length && i < kLengthBytes; ++i) {
    length |= static_cast<uint64_t>(static_cast<unsigned char>(file[i])) << (8 * i);
  }
  if (has_length && length <= kMaxHeaderBytes && length <= file.size() - kLengthBytes) {
    return length;
  }
  // Only now, so that no sound file can be taken for something else.
  const std::string impostor = Impostor(file.substr(0, 256));
  if (!impostor.empty()) return Corrupt(path, impostor, "a safetensors file");
  if (!has_length) {
    return Corrupt(path, "a file of " + Bytes(file.size()),
                   "at least 8 bytes and a header: the file is cut short");
  }
  if (length > kMaxHeaderBytes) {
    return Corrupt(path, "a header length of " + Bytes(length),
                   "at most " + Bytes(kMaxHeaderBytes) + " (not a safetensors file?)");
  }
  return Corrupt(path, "a file of " + Bytes(file.size()),
                 "at least " + Bytes(kLengthBytes + length) + ": the header is cut short");
}

Result<Shape> ReadShape(const Json* json, const std::string& where) {
  const Json::Array* extents = json == nullptr ? nullptr : json->AsArray();
  if (extents == nullptr) {
    return Corrupt(where + ": shape", json == nullptr ? "nothing" : json->Describe(), "an array");
  }
  if (extents->size() > Shape::kMaxRank) {
    return Error{ErrorCode::kUnsupported, kOperation, where + ": shape",
                 std::to_string(extents->size()) + " axes",
                 "at most " + std::to_string(Shape::kMaxRank)};
  }
  Shape shape;
  int64_t elements = 1;
  for (const Json& extent : *extents) {
    const int64_t* value = extent.AsInteger();
    if (value == nullptr || *value < 0) {
      return Corrupt(where + ": shape", extent.Describe(), "integers from 0");
    }
    // 64 bits an element at most, so that the bits of a tensor stay countable.
    constexpr int64_t kMaxElements = std::numeric_limits<int64_t>::max() / 64;
    if (*value != 0 && elements > kMaxElements / *value) {
      return Corrupt(where + ": shape", "a product of the extents that overflows",
                     "at most " + std::to_string(kMaxElements) + " elements");
    }
    elements *= *value;
    shape.Append(*value);
  }
  return shape;
}

// An entry with its offset still relative to the data section.
Result<TensorEntry> ReadEntry(const std::string& name, const Json& json, const std::string& path) {
  const std::string where = path + ": tensor " + Quote(name);
  if (json.AsObject() == nullptr) return Corrupt(where, json.Describe(), "an object");
  TensorEntry entry;
  entry.name = name;
  const Json* dtype = json.Find("dtype");
  if (dtype == nullptr || dtype->AsString() == nullptr) {
    return Corrupt(where + ": dtype", dtype == nullptr ? "nothing" : dtype->Describe(), "a string");
  }
  const auto row = std::find_if(kDTypes.begin(), kDTypes.end(), [&](const DTypeRow& candidate) {
    return *dtype->AsString() == candidate.name;
  });
  if (row == kDTypes.end()) {
    return Corrupt(where + ": dtype", dtype->Describe(), "a safetensors dtype");
  }
  entry.dtype_name = row->name;
  entry.dtype = row->dtype;
  SEGUE_ASSIGN_OR_RETURN(entry.shape, ReadShape(json.Find("shape"), where));

  const Json* offsets = json.Find("data_offsets");
  const Json::Array* pair = offsets == nullptr ? nullptr : offsets->AsArray();
  if (pair == nullptr || pair->size() != 2 || (*pair)[0].AsInteger() == nullptr ||
      (*pair)[1].AsInteger() == nullptr) {
    return Corrupt(where + ": data_offsets", offsets == nullptr ? "nothing" : offsets->Describe(),
                   "two integers");
  }
  const int64_t begin = *(*pair)[0].AsInteger();
  const int64_t end = *(*pair)[1].AsInteger();
  if (begin < 0 || end < begin) {
    return Corrupt(where + ": data_offsets",
                   "[" + std::to_string(begin) + ", " + std::to_string(end) + "]",
                   "0 <= begin <= end");
  }
  const int64_t bits = entry.shape.NumElements() * row->bits;
  if (bits % 8 != 0 || end - begin != bits / 8) {
    return Corrupt(where + ": data_offsets", "a range of " + Bytes(end - begin),
                   std::to_string(bits / 8) + " bytes, as " + entry.dtype_name + " " +
                       entry.shape.ToString() + " takes");
  }
  entry.offset = begin;
  entry.bytes = end - begin;
  return entry;
}

Status ReadMetadata(const Json& json, const std::string& path,
                    std::map<std::string, std::string>* metadata) {
  const std::string where = path + ": __metadata__";
  if (json.AsObject() == nullptr) return Corrupt(where, json.Describe(), "an object");
  for (const auto& [key, value] : *json.AsObject()) {
    if (value.AsString() == nullptr) {
      return Corrupt(where + ": " + Quote(key), value.Describe(), "a string");
    }
    metadata->emplace(key, *value.AsString());
  }
  return {};
}

// The rule of tensor_file.h: entries, already ordered by offset, tile [0, data_bytes) exactly.
Status CheckTiling(const std::vector<TensorEntry>& entries, int64_t data_bytes, uint64_t header_end,
                   const std::string& path) {
  int64_t furthest = 0;
  for (const TensorEntry& entry : entries) {
    furthest = std::max(furthest, entry.offset + entry.bytes);
  }
  const uint64_t wanted = header_end + static_cast<uint64_t>(furthest);
  const uint64_t got = header_end + static_cast<uint64_t>(data_bytes);
  if (got < wanted) {
    return Corrupt(path, "a file of " + Bytes(got),
                   Bytes(wanted) + ", as its header says: the data are cut short");
  }
  if (got > wanted) {
    return Corrupt(path, "a file of " + Bytes(got),
                   Bytes(wanted) + ", as its header says: there are trailing bytes");
  }
  int64_t position = 0;
  const std::string* before = nullptr;
  for (const TensorEntry& entry : entries) {
    if (entry.offset != position) {
      const std::string neighbour =
          before == nullptr ? "the beginning" : "the end of " + Quote(*before);
      return Corrupt(path + ": tensor " + Quote(entry.name) + ": data_offsets",
                     std::string(entry.offset < position ? "an overlap" : "a hole") +
                         " (begins at " + std::to_string(entry.offset) + ")",
                     std::to_string(position) + ", " + neighbour);
    }
    position += entry.bytes;
    before = &entry.name;
  }
  return {};
}

}  // namespace

Result<TensorHeader> ParseTensorHeader(Span<const uint8_t> file, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  SEGUE_ASSIGN_OR_RETURN(const uint64_t header_bytes, HeaderBytes(text, path));
  const std::string_view header_text = text.substr(kLengthBytes, header_bytes);
  if (header_text.empty() || header_text.front() != '{') {
    return Corrupt(path, "a header that begins with " + Quote(header_text.substr(0, 16)),
                   "a JSON object");
  }
  JsonLimits limits;
  limits.max_bytes = kMaxHeaderBytes;
  limits.max_depth = 4;  // header, entry, array of extents
  SEGUE_ASSIGN_OR_RETURN(const Json json, ParseJson(header_text, path + ": header", limits));

  TensorHeader header;
  header.entries.reserve(json.AsObject()->size());
  for (const auto& [name, value] : *json.AsObject()) {
    if (name == "__metadata__") {
      SEGUE_RETURN_IF_ERROR(ReadMetadata(value, path, &header.metadata));
      continue;
    }
    SEGUE_ASSIGN_OR_RETURN(TensorEntry entry, ReadEntry(name, value, path));
    header.entries.push_back(std::move(entry));
  }
  // By size as well, so that an empty tensor comes before the one that begins where it does.
  std::sort(header.entries.begin(), header.entries.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
            });
  const uint64_t header_end = kLengthBytes + header_bytes;
  SEGUE_RETURN_IF_ERROR(CheckTiling(header.entries, static_cast<int64_t>(text.size() - header_end),
                                    header_end, path));
  for (TensorEntry& entry : header.entries) entry.offset += static_cast<int64_t>(header_end);
  return header;
}

}  // namespace segue::model
