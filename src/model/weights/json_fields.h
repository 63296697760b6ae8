// Reads the members of a JSON object into variables, keeping the first error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/weights/json.h"
#include "segue/status.h"

namespace segue::model {

// Each Read leaves its variable alone when the key is absent or null, so that variables start out
// as the defaults of the class that wrote the file; keys nobody reads are ignored. After the first
// error further calls do nothing, and status() reports it with file and field.
class JsonFields {
 public:
  // `path` is how error messages spell the object within its file; empty: the file's top level.
  // Precondition: `object` outlives this. A value that is no object is an error.
  JsonFields(const Json& object, std::string file, std::string path = "");

  // Present and not null.
  bool Has(const std::string& key) const;
  // Present with the value null.
  bool IsNull(const std::string& key) const;
  void Read(const std::string& key, bool* value);
  void Read(const std::string& key, int64_t* value);
  void Read(const std::string& key, double* value);
  void Read(const std::string& key, std::string* value);
  void Read(const std::string& key, std::vector<bool>* values);
  void Read(const std::string& key, std::vector<int64_t>* values);
  void Read(const std::string& key, std::vector<float>* values);
  void Read(const std::string& key, std::vector<std::string>* values);

  // Error (kUnsupported) if the key is present with a value other than this one.
  void OnlyBool(const std::string& key, bool value, const std::string& why);
  void OnlyString(const std::string& key, const std::string& value);
  // Records an error of the caller's own about a key.
  void Fail(ErrorCode code, const std::string& key, std::string got, std::string wanted);

  // Precondition: Has(key). The member itself, for nested objects.
  const Json& Member(const std::string& key) const;
  std::string FieldName(const std::string& key) const;

  const Status& status() const { return status_; }

 private:
  template <typename T, typename Convert>
  void ReadArray(const std::string& key, const char* element, Convert convert,
                 std::vector<T>* values);
  void WrongKind(const std::string& key, const Json& value, const char* wanted);
  const Json* Present(const std::string& key) const;

  const Json* object_;
  std::string file_;
  std::string path_;
  Status status_;
};

}  // namespace segue::model
