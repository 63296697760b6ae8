#include "cli/console.h"

#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "segue/utf8.h"

namespace segue::cli {

int ExitStatus(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return kExitUsage;
    case ErrorCode::kOutOfMemory:
      return 3;
    case ErrorCode::kNotFound:
      return 4;
    case ErrorCode::kCorrupt:
      return 5;
    case ErrorCode::kUnsupported:
      return 6;
    case ErrorCode::kIo:
      return 7;
    case ErrorCode::kNonFinite:
      return 8;
    case ErrorCode::kInternal:
      return 9;
    case ErrorCode::kCancelled:
      return 130;  // 128 + SIGINT, as shells report an interrupted program
  }
  return 9;
}

std::string OneLine(std::string_view text) {
  std::string line;
  size_t valid = FindInvalidUtf8(text).value_or(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '\n') {
      line += "\\n";
    } else if (byte == '\t') {
      line += "\\t";
    } else if (byte < 0x20 || byte == 0x7f || i == valid) {
      line += Format("\\x%02x", byte);
      if (i == valid) valid = i + 1 + FindInvalidUtf8(text.substr(i + 1)).value_or(text.size());
    } else {
      line += text[i];
    }
  }
  return line;
}

int Fail(const std::string& command, const Error& error) {
  const std::string name = command.empty() ? "segue" : "segue " + command;
  std::fprintf(stderr, "%s: %s\n", name.c_str(), OneLine(error.Message()).c_str());
  return ExitStatus(error.code);
}

Error Usage(std::string argument, std::string got, std::string wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .argument = std::move(argument),
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

Status Print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      return Error{.code = ErrorCode::kIo, .operation = "write to stdout", .got = strerror(errno)};
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

std::string Format(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  va_list again;
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, arguments);
  va_end(arguments);
  std::string text(size > 0 ? static_cast<size_t>(size) : 0, '\0');
  if (size > 0) std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return text;
}

std::string FormatBytes(int64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? Format("%.0f B", value) : Format("%.1f %s", value, units[unit]);
}

}  // namespace segue::cli
