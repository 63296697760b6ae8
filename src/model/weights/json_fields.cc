#include "model/weights/json_fields.h"

#include <optional>
#include <utility>

namespace segue::model {
namespace {

constexpr const char* kOperation = "read configuration";

}  // namespace

JsonFields::JsonFields(const Json& object, std::string file, std::string path)
    : object_(&object), file_(std::move(file)), path_(std::move(path)) {
  if (object.AsObject() != nullptr) return;
  const std::string where = path_.empty() ? file_ : file_ + ": " + path_;
  status_ = Error{ErrorCode::kCorrupt, kOperation, where, object.Describe(), "an object"};
}

std::string JsonFields::FieldName(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

const Json* JsonFields::Present(const std::string& key) const {
  const Json* value = object_->Find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool JsonFields::Has(const std::string& key) const { return Present(key) != nullptr; }

bool JsonFields::IsNull(const std::string& key) const {
  const Json* value = object_->Find(key);
  return value != nullptr && value->is_null();
}

const Json& JsonFields::Member(const std::string& key) const { return *Present(key); }

void JsonFields::Fail(ErrorCode code, const std::string& key, std::string got, std::string wanted) {
  if (!status_.ok()) return;
  status_ =
      Error{code, kOperation, file_ + ": " + FieldName(key), std::move(got), std::move(wanted)};
}

void JsonFields::WrongKind(const std::string& key, const Json& value, const char* wanted) {
  Fail(ErrorCode::kCorrupt, key, value.Describe(), wanted);
}

void JsonFields::Read(const std::string& key, bool* value) {
  const Json* json = Present(key);
  if (json == nullptr || !status_.ok()) return;
  const bool* flag = json->AsBool();
  if (flag == nullptr) return WrongKind(key, *json, "true or false");
  *value = *flag;
}

void JsonFields::Read(const std::string& key, int64_t* value) {
  const Json* json = Present(key);
  if (json == nullptr || !status_.ok()) return;
  const int64_t* integer = json->AsInteger();
  if (integer == nullptr) return WrongKind(key, *json, "an integer");
  *value = *integer;
}

void JsonFields::Read(const std::string& key, double* value) {
  const Json* json = Present(key);
  if (json == nullptr || !status_.ok()) return;
  const std::optional<double> number = json->AsNumber();
  if (!number) return WrongKind(key, *json, "a number");
  *value = *number;
}

void JsonFields::Read(const std::string& key, std::string* value) {
  const Json* json = Present(key);
  if (json == nullptr || !status_.ok()) return;
  const std::string* text = json->AsString();
  if (text == nullptr) return WrongKind(key, *json, "a string");
  *value = *text;
}

template <typename T, typename Convert>
void JsonFields::ReadArray(const std::string& key, const char* element, Convert convert,
                           std::vector<T>* values) {
  const Json* json = Present(key);
  if (json == nullptr || !status_.ok()) return;
  const Json::Array* array = json->AsArray();
  if (array == nullptr) return WrongKind(key, *json, "an array");
  std::vector<T> read;
  read.reserve(array->size());
  for (size_t i = 0; i < array->size(); ++i) {
    const std::optional<T> value = convert((*array)[i]);
    if (!value) return WrongKind(key + "[" + std::to_string(i) + "]", (*array)[i], element);
    read.push_back(*value);
  }
  *values = std::move(read);
}

void JsonFields::Read(const std::string& key, std::vector<bool>* values) {
  ReadArray(
      key, "true or false",
      [](const Json& json) {
        return json.AsBool() ? std::optional<bool>(*json.AsBool()) : std::nullopt;
      },
      values);
}

void JsonFields::Read(const std::string& key, std::vector<int64_t>* values) {
  ReadArray(
      key, "an integer",
      [](const Json& json) {
        return json.AsInteger() ? std::optional<int64_t>(*json.AsInteger()) : std::nullopt;
      },
      values);
}

void JsonFields::Read(const std::string& key, std::vector<float>* values) {
  ReadArray(
      key, "a number",
      [](const Json& json) {
        const std::optional<double> number = json.AsNumber();
        return number ? std::optional<float>(static_cast<float>(*number)) : std::nullopt;
      },
      values);
}

void JsonFields::Read(const std::string& key, std::vector<std::string>* values) {
  ReadArray(
      key, "a string",
      [](const Json& json) {
        return json.AsString() ? std::optional<std::string>(*json.AsString()) : std::nullopt;
      },
      values);
}

void JsonFields::OnlyBool(const std::string& key, bool value, const std::string& why) {
  bool got = value;
  Read(key, &got);
  if (got != value) {
    Fail(ErrorCode::kUnsupported, key, got ? "true" : "false",
         std::string(value ? "true" : "false") + " (" + why + ")");
  }
}

void JsonFields::OnlyString(const std::string& key, const std::string& value) {
  std::string got = value;
  Read(key, &got);
  if (got != value) Fail(ErrorCode::kUnsupported, key, Quote(got), Quote(value));
}

}  // namespace segue::model
