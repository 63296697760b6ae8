// Strict JSON: a value tree, and the only place where the JSON library is called.
//
// Stricter than the grammar where leniency hides damage: a key that occurs twice in an object is
// an error, and so are texts above a size and nesting above a depth. Nothing throws.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "segue/status.h"

namespace segue::model {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in the text's order
  using Value = std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object>;

  Json() = default;  // null
  explicit Json(Value value) : value_(std::move(value)) {}

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  // Null pointers when the value is of another kind. An integer beyond int64_t is a number.
  const bool* AsBool() const { return std::get_if<bool>(&value_); }
  const int64_t* AsInteger() const { return std::get_if<int64_t>(&value_); }
  const std::string* AsString() const { return std::get_if<std::string>(&value_); }
  const Array* AsArray() const { return std::get_if<Array>(&value_); }
  const Object* AsObject() const { return std::get_if<Object>(&value_); }
  // Integers and other numbers alike.
  std::optional<double> AsNumber() const;
  // The member of an object, null when absent or when this is no object. Linear in the members.
  const Json* Find(std::string_view key) const;
  // A short rendering for error messages: `"text"`, `12`, `an array of 3`.
  std::string Describe() const;

 private:
  friend class JsonBuilder;
  Value value_;
};

struct JsonLimits {
  int64_t max_bytes = int64_t{64} << 20;  // a tokenizer.json of 150,000 tokens takes 11 MiB
  int max_depth = 32;                     // configurations nest four deep
};

// Parses one value that fills the text. `file` is for error messages only. Errors are kCorrupt.
Result<Json> ParseJson(std::string_view text, const std::string& file,
                       const JsonLimits& limits = {});
// The same for a file; kNotFound when it is not there.
Result<Json> ReadJsonFile(const std::string& path, const JsonLimits& limits = {});
// A whole file as bytes. Errors: kNotFound, kIo, and kCorrupt above `max_bytes`.
Result<std::string> ReadTextFile(const std::string& path, int64_t max_bytes);

// A string in quotes for an error message: control characters escaped, long ones shortened.
std::string Quote(std::string_view text);

// The first names of a list, and how many there are besides, for an error message.
std::string JoinNames(const std::vector<std::string>& names);

}  // namespace segue::model
