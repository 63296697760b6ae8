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

// PNG text chunks: keyword (Latin-1, 1..79 bytes) and UTF-8 text, in order.
using TextChunks = std::vector<std::pair<std::string, std::string>>;

// A whole PNG file. Errors: empty image, wrong buffer size, a bad keyword.
Result<std::vector<uint8_t>> EncodePng(const Image& image, const TextChunks& text);

struct DecodedPng {
  Image image;
  TextChunks text;
};
// The reverse, for 8-bit RGB files such as EncodePng's. Errors: not a PNG, another format.
Result<DecodedPng> DecodePng(const std::vector<uint8_t>& file);

}  // namespace segue
