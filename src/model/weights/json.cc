#include "model/weights/json.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

namespace segue::model {

// Receives the library's parse events and builds the tree.
class JsonBuilder {
 public:
  explicit JsonBuilder(int max_depth) : max_depth_(max_depth) {}

  bool null() { return Add(Json()); }
  bool boolean(bool value) { return Add(Json(value)); }
  bool number_integer(int64_t value) { return Add(Json(value)); }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Add(Json(static_cast<double>(value)));
    }
    return Add(Json(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string&) { return Add(Json(value)); }
  bool string(std::string& value) { return Add(Json(std::move(value))); }
  bool binary(std::vector<uint8_t>&) { return Fail("binary data"); }
  bool key(std::string& name) {
    keys_.back() = std::move(name);
    return true;
  }
  bool start_object(size_t) { return Open(Json(Json::Object())); }
  bool start_array(size_t) { return Open(Json(Json::Array())); }
  bool end_array() { return Close(); }
  bool end_object() {
    const std::string* repeated = RepeatedKey(std::get<Json::Object>(open_.back().value_));
    if (repeated != nullptr) return Fail("the key " + Quote(*repeated) + " twice in one object");
    return Close();
  }
  template <typename Exception>
  bool parse_error(size_t position, const std::string&, const Exception& exception) {
    // The library prefixes "[json.exception.parse_error.101] ".
    std::string text = exception.what();
    if (const size_t end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
    for (char& c : text) {
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
    }
    if (text.size() > 240) text.replace(240, std::string::npos, "...");
    return Fail(text + " (byte " + std::to_string(position) + ")");
  }

  const std::string& problem() const { return problem_; }
  Json TakeRoot() { return std::move(root_); }

 private:
  bool Fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  bool Open(Json container) {
    if (static_cast<int>(open_.size()) >= max_depth_) {
      return Fail("nesting deeper than " + std::to_string(max_depth_));
    }
    open_.push_back(std::move(container));
    keys_.emplace_back();
    return true;
  }

  bool Close() {
    Json done = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return Add(std::move(done));
  }

  bool Add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (auto* array = std::get_if<Json::Array>(&open_.back().value_)) {
      array->push_back(std::move(value));
    } else {
      std::get<Json::Object>(open_.back().value_)
          .emplace_back(std::move(keys_.back()), std::move(value));
    }
    return true;
  }

  // A key that occurs more than once, or null.
  static const std::string* RepeatedKey(const Json::Object& object) {
    std::vector<const std::string*> keys;
    keys.reserve(object.size());
    for (const auto& member : object) keys.push_back(&member.first);
    std::sort(keys.begin(), keys.end(), [](auto* a, auto* b) { return *a < *b; });
    const auto twice =
        std::adjacent_find(keys.begin(), keys.end(), [](auto* a, auto* b) { return *a == *b; });
    return twice == keys.end() ? nullptr : *twice;
  }

  int max_depth_;
  Json root_;
  std::vector<Json> open_;         // containers from the root to the current one
  std::vector<std::string> keys_;  // of each open object, the key whose value comes next
  std::string problem_;
};

std::optional<double> Json::AsNumber() const {
  if (const int64_t* integer = AsInteger()) return static_cast<double>(*integer);
  if (const double* number = std::get_if<double>(&value_)) return *number;
  return std::nullopt;
}

const Json* Json::Find(std::string_view key) const {
  const Object* object = AsObject();
  if (object == nullptr) return nullptr;
  for (const auto& [name, value] : *object) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string Json::Describe() const {
  if (const bool* flag = AsBool()) return *flag ? "true" : "false";
  if (const int64_t* integer = AsInteger()) return std::to_string(*integer);
  if (const double* number = std::get_if<double>(&value_)) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.17g", *number);
    return text;
  }
  if (const std::string* text = AsString()) return Quote(*text);
  if (const Array* array = AsArray()) return "an array of " + std::to_string(array->size());
  if (const Object* object = AsObject()) {
    return "an object of " + std::to_string(object->size());
  }
  return "null";
}

Result<Json> ParseJson(std::string_view text, const std::string& file, const JsonLimits& limits) {
  constexpr const char* kOperation = "parse JSON";
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return Error{ErrorCode::kCorrupt, kOperation, file, std::to_string(text.size()) + " bytes",
                 "at most " + std::to_string(limits.max_bytes)};
  }
  JsonBuilder builder(limits.max_depth);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    return Error{ErrorCode::kCorrupt, kOperation, file, builder.problem(), "strict JSON"};
  }
  return builder.TakeRoot();
}

Result<std::string> ReadTextFile(const std::string& path, int64_t max_bytes) {
  constexpr const char* kOperation = "read file";
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    const int reason = errno;
    return Error{reason == ENOENT || reason == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo,
                 kOperation, path, std::generic_category().message(reason), "a readable file"};
  }
  std::string text;
  char buffer[1 << 16];
  size_t count = sizeof(buffer);
  while (count == sizeof(buffer) && static_cast<int64_t>(text.size()) <= max_bytes) {
    count = std::fread(buffer, 1, sizeof(buffer), file);
    text.append(buffer, count);
  }
  const int reason = std::ferror(file) ? errno : 0;
  std::fclose(file);
  if (reason != 0) {
    return Error{ErrorCode::kIo, kOperation, path, std::generic_category().message(reason),
                 "a readable file"};
  }
  if (static_cast<int64_t>(text.size()) > max_bytes) {
    return Error{ErrorCode::kCorrupt, kOperation, path, "more than that",
                 "at most " + std::to_string(max_bytes) + " bytes"};
  }
  return text;
}

Result<Json> ReadJsonFile(const std::string& path, const JsonLimits& limits) {
  SEGUE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, limits.max_bytes));
  return ParseJson(text, path, limits);
}

std::string JoinNames(const std::vector<std::string>& names) {
  // Names an error message lists before it only counts.
  constexpr size_t kNamesShown = 8;
  std::string joined;
  for (size_t i = 0; i < names.size() && i < kNamesShown; ++i) {
    joined += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kNamesShown) {
    joined += " and " + std::to_string(names.size() - kNamesShown) + " more";
  }
  return joined;
}

std::string Quote(std::string_view text) {
  constexpr size_t kLongest = 120;
  std::string quoted = "\"";
  for (char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\x%02x", byte);
      quoted += escaped;
    } else {
      quoted += c;
    }
  }
  return quoted + (text.size() > kLongest ? "...\"" : "\"");
}

}  // namespace segue::model
