// Pictures in memory and on their way to a file.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "segue/status.h"

namespace segue {

// 8-bit RGB, rows top to bottom, no padding.
struct Image {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;  // height * width * 3
};

// PNG text chunks, in order: a keyword (1..79 printable ASCII characters, no space at either end,
// no two spaces in a row: PNG specification 11.3.4.2) and UTF-8 text without NUL. Written as tEXt
// where the text is ASCII, else as iTXt.
using TextChunks = std::vector<std::pair<std::string, std::string>>;

// A whole PNG file, a function of its arguments alone (no time stamp). Errors: an empty image, a
// buffer of another size, a bad keyword or text.
Result<std::vector<uint8_t>> EncodePng(const Image& image, const TextChunks& text);

struct DecodedPng {
  Image image;
  TextChunks text;
};
// The reverse, for 8-bit RGB files such as EncodePng's; Latin-1 text becomes UTF-8. Errors: not a
// PNG, cut short, a wrong checksum, another pixel format, more pixels than the file can hold.
Result<DecodedPng> DecodePng(const std::vector<uint8_t>& file);

}  // namespace segue
