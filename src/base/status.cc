#include "segue/status.h"

namespace segue {

const char* ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kIo:
      return "input/output";
    case ErrorCode::kOutOfMemory:
      return "out of memory";
    case ErrorCode::kNonFinite:
      return "non-finite";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

std::string Error::Message() const {
  std::string text = operation;
  const auto add = [&text](const char* separator, const std::string& part) {
    if (part.empty()) return;
    if (!text.empty()) text += separator;
    text += part;
  };
  add(": ", argument);
  if (!got.empty()) add(": ", "got " + got);
  if (!wanted.empty()) add(got.empty() ? ": " : ", ", "wanted " + wanted);
  return text;
}

}  // namespace segue
