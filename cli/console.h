// What every subcommand shares of stdout, stderr and the exit status.
#pragma once

#include <string>
#include <string_view>

#include "segue/status.h"

namespace segue::cli {

// Exit statuses (docs/cli.md). Status 2 covers usage errors and every other invalid argument.
inline constexpr int kExitOk = 0;
inline constexpr int kExitNo = 1;  // the answer is no: compare found a difference, verify a problem
inline constexpr int kExitUsage = 2;

int ExitStatus(ErrorCode code);

// Text on one line of a terminal: control characters (line ends, escape sequences) are written as
// \n, \t or \xNN, bytes that are not UTF-8 as \xNN.
std::string OneLine(std::string_view text);

// "segue <command>: <message>" on stderr, one line. Returns the exit status of the error's code.
int Fail(const std::string& command, const Error& error);

// A usage error of the command line itself, e.g. Usage("--steps", "0", "a whole number ...").
Error Usage(std::string argument, std::string got, std::string wanted);

// Writes to stdout at once; what the system refuses (a full disk, a closed pipe) is an error.
Status Print(std::string_view text);

// printf-style formatting into a string.
[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...);

// A byte count for people: "512 B", "1.5 KiB", "29.3 MiB", "53.7 GiB".
std::string FormatBytes(int64_t bytes);

}  // namespace segue::cli
