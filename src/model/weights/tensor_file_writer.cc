#include <cerrno>
#include <cstdio>
#include <set>
#include <system_error>

#include "model/weights/json.h"
#include "model/weights/tensor_file.h"

namespace segue::model {
namespace {

constexpr const char* kOperation = "write safetensors";

// A JSON string literal. Names are UTF-8 already; only what JSON forbids raw is escaped.
std::string JsonString(std::string_view text) {
  std::string literal(1, '"');
  for (char c : text) {
    if (c == '"' || c == '\\') {
      literal += '\\';
      literal += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned char>(c));
      literal += escaped;
    } else {
      literal += c;
    }
  }
  return literal + '"';
}

int64_t BytesOf(const WeightView& view) {
  return view.shape.NumElements() * static_cast<int64_t>(SizeOf(view.dtype));
}

std::string HeaderText(const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (text.back() != '{') text += ',';
      text += JsonString(key);
      text += ':';
      text += JsonString(value);
    }
    text += '}';
  }
  int64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    if (text.back() != '{') text += ',';
    text += JsonString(tensor.name) + ":{\"dtype\":\"" + DTypeName(tensor.view.dtype) +
            "\",\"shape\":[";
    for (int axis = 0; axis < tensor.view.shape.rank(); ++axis) {
      if (axis > 0) text += ',';
      text += std::to_string(tensor.view.shape[axis]);
    }
    const int64_t end = offset + BytesOf(tensor.view);
    text += "],\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(end) + "]}";
    offset = end;
  }
  text += '}';
  // Spaces to a multiple of 8, so that the data are aligned for every dtype.
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

bool WriteAll(std::FILE* file, const std::string& header, const std::vector<NamedTensor>& tensors) {
  uint8_t length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>(header.size() >> (8 * i));
  if (std::fwrite(length, 1, sizeof(length), file) != sizeof(length)) return false;
  if (std::fwrite(header.data(), 1, header.size(), file) != header.size()) return false;
  for (const NamedTensor& tensor : tensors) {
    const auto bytes = static_cast<size_t>(BytesOf(tensor.view));
    if (bytes > 0 && std::fwrite(tensor.view.data, 1, bytes, file) != bytes) return false;
  }
  return true;
}

}  // namespace

Status WriteTensorFile(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::set<std::string_view> names = {"__metadata__"};
  for (const NamedTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return Error{ErrorCode::kInvalidArgument, kOperation, path,
                   "the name " + Quote(tensor.name) + " twice", "distinct names"};
    }
  }
  // Written beside the target and renamed, so that no half file bears its name.
  const std::string partial = path + ".partial";
  std::FILE* file = std::fopen(partial.c_str(), "wb");
  bool written = file != nullptr;
  int reason = errno;
  if (written) {
    written = WriteAll(file, HeaderText(tensors, metadata), tensors);
    reason = errno;
    if (std::fclose(file) != 0 && written) {
      written = false;
      reason = errno;
    }
    if (written && std::rename(partial.c_str(), path.c_str()) != 0) {
      written = false;
      reason = errno;
    }
    if (!written) std::remove(partial.c_str());
  }
  if (written) return {};
  return Error{ErrorCode::kIo, kOperation, path, std::generic_category().message(reason),
               "a writable file"};
}

}  // namespace segue::model
