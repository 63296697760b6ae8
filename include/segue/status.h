// Error handling of the whole engine: a function that can fail returns Result<T>.
//
// An Error names the operation, the argument (a file, a field, a flag), what was got and what was
// wanted, so that every message can be acted on without reading the source. No exception crosses
// the public API, and the library never prints, exits or aborts.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace segue {

// What kind of failure; the command line maps each kind to an exit status (docs/cli.md).
enum class ErrorCode {
  kInvalidArgument,  // the caller asked for something that cannot be
  kNotFound,         // a file, a tensor, a key is missing
  kCorrupt,          // a file's contents contradict themselves or its format
  kUnsupported,      // well-formed, but this build or model does not do it
  kIo,               // the operating system refused a read or a write
  kOutOfMemory,      // the memory plan does not fit, or an allocation failed
  kNonFinite,        // NaN or infinity where a number was due
  kCancelled,        // stopped on request
  kInternal,         // a broken invariant of the engine itself
};

// Lower-case name of a code, e.g. "invalid argument".
const char* ErrorCodeName(ErrorCode code);

struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string operation;  // what was being done, e.g. "load safetensors"
  std::string argument;   // what it was done to, e.g. "vae/model.safetensors: tensor 'x'"
  std::string got;        // the offending value
  std::string wanted;     // what would have been accepted

  // "<operation>: <argument>: got <got>, wanted <wanted>"; empty parts are left out.
  std::string Message() const;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit, so that a function returns a plain value or an Error.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Precondition: ok().
  T& value() & { return *Get(); }
  const T& value() const& { return *const_cast<Result*>(this)->Get(); }
  // By value, so that a loop over `f().value()` does not outlive what it walks.
  T value() && { return std::move(*Get()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*Get()); }
  T* operator->() { return Get(); }
  const T* operator->() const { return const_cast<Result*>(this)->Get(); }

  // Precondition: !ok().
  const Error& error() const& { return *std::get_if<1>(&state_); }
  Error&& error() && { return std::move(*std::get_if<1>(&state_)); }

 private:
  T* Get() {
    assert(ok());
    return std::get_if<0>(&state_);
  }

  std::variant<T, Error> state_;
};

// Result<void>: success carries nothing. Spelled `Status` for short.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }

  // Precondition: !ok().
  const Error& error() const& { return *error_; }
  Error&& error() && { return *std::move(error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace segue

#define SEGUE_CONCAT_INNER(a, b) a##b
#define SEGUE_CONCAT(a, b) SEGUE_CONCAT_INNER(a, b)

// Returns the error of `expr` (a Result) from the enclosing function, if it has one.
#define SEGUE_RETURN_IF_ERROR(expr)                                                             \
  do {                                                                                          \
    if (auto segue_status = (expr); !segue_status.ok()) return std::move(segue_status).error(); \
  } while (false)

// Evaluates `expr` (a Result<T>), returns its error, or assigns its value to `lhs`, which may be a
// declaration: SEGUE_ASSIGN_OR_RETURN(auto file, OpenFile(path));
#define SEGUE_ASSIGN_OR_RETURN(lhs, expr) \
  SEGUE_ASSIGN_OR_RETURN_INNER(SEGUE_CONCAT(segue_result_, __LINE__), lhs, expr)
// NOLINTBEGIN(bugprone-macro-parentheses): `tmp` and `lhs` are declared, not evaluated.
#define SEGUE_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) return std::move(tmp).error();      \
  lhs = std::move(tmp).value()
// NOLINTEND(bugprone-macro-parentheses)
