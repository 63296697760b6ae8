// Option values, read strictly: the whole text is the number, no sign where none belongs, no
// leading blanks, no rounding, no locale. Every error names the option, what was got and wanted.
#pragma once

#include <cstdint>
#include <string>

#include "segue/checkpoint.h"
#include "segue/status.h"

namespace segue::cli {

// A whole number from `low` to `high`.
Result<int> ParseInt(const std::string& option, const std::string& text, int low, int high);

// A whole number from 0 to 2^64 - 1.
Result<uint64_t> ParseUint64(const std::string& option, const std::string& text);

// A finite decimal number.
Result<double> ParseDouble(const std::string& option, const std::string& text);

// "WIDTHxHEIGHT" in pixels with a lower-case x; both sides positive multiples of 16 (the VAE's
// factor 8 times the transformer's patch of 2). A size that is not names the nearest that are.
Result<PictureSize> ParseSize(const std::string& option, const std::string& text);

}  // namespace segue::cli
