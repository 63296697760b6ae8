#include <gtest/gtest.h>
#include <png.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "segue/image.h"

namespace segue {
namespace {

Image Noise(int width, int height, uint32_t seed = 1) {
  Image image{.width = width, .height = height};
  image.rgb.resize(size_t{3} * width * height);
  std::mt19937 random(seed);
  for (uint8_t& value : image.rgb) value = static_cast<uint8_t>(random());
  return image;
}

std::vector<uint8_t> MustEncode(const Image& image, const TextChunks& text = {}) {
  Result<std::vector<uint8_t>> file = EncodePng(image, text);
  EXPECT_TRUE(file.ok()) << file.error().Message();
  return file.ok() ? *std::move(file) : std::vector<uint8_t>{};
}

// A file of another pixel format or row order, by libpng itself.
std::vector<uint8_t> ForeignPng(int color_type, int bit_depth, bool interlaced,
                                const Image& pixels) {
  std::vector<uint8_t> file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp p, png_bytep bytes, size_t count) {
        auto* out = static_cast<std::vector<uint8_t>*>(png_get_io_ptr(p));
        out->insert(out->end(), bytes, bytes + count);
      },
      nullptr);
  png_set_IHDR(png, info, pixels.width, pixels.height, bit_depth, color_type,
               interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  char latin1[] = "caf\xe9";
  char key[] = "Title";
  png_text text = {};
  text.compression = PNG_TEXT_COMPRESSION_zTXt;
  text.key = key;
  text.text = latin1;
  text.text_length = std::strlen(latin1);
  png_set_text(png, info, &text, 1);
  png_write_info(png, info);
  std::vector<uint8_t> padded = pixels.rgb;
  padded.resize(pixels.rgb.size() * 3);  // enough for a row of any format tried here
  std::vector<png_bytep> rows;
  for (int y = 0; y < pixels.height; ++y) rows.push_back(&padded[size_t{3} * y * pixels.width]);
  png_write_image(png, rows.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return file;
}

TEST(Png, RoundTripsPixelsAndText) {
  const TextChunks text = {{"prompt", "a red \u4e2d\u6587 \U0001F600\nsecond line"},
                           {"seed", "18446744073709551615"},
                           {"empty", ""}};
  for (const auto& [width, height] : {std::pair{1, 1}, {7, 3}, {3, 7}, {128, 96}, {1, 500}}) {
    const Image image = Noise(width, height);
    const Result<DecodedPng> decoded = DecodePng(MustEncode(image, text));
    ASSERT_TRUE(decoded.ok()) << decoded.error().Message();
    EXPECT_EQ(decoded->image.width, width);
    EXPECT_EQ(decoded->image.height, height);
    EXPECT_EQ(decoded->image.rgb, image.rgb);
    EXPECT_EQ(decoded->text, text);
  }
}

TEST(Png, AnotherReaderSeesTheSamePixels) {
  const Image image = Noise(33, 17);
  const std::vector<uint8_t> file = MustEncode(image, {{"prompt", "caf\u00e9"}});
  // PNG specification 11.2.2: width and height, big-endian, follow signature, length and "IHDR".
  EXPECT_EQ(file[19], 33);
  EXPECT_EQ(file[23], 17);
  png_image reader = {};
  reader.version = PNG_IMAGE_VERSION;
  ASSERT_NE(png_image_begin_read_from_memory(&reader, file.data(), file.size()), 0);
  ASSERT_EQ(reader.width, 33U);
  ASSERT_EQ(reader.height, 17U);
  reader.format = PNG_FORMAT_RGB;
  std::vector<uint8_t> rgb(PNG_IMAGE_SIZE(reader));
  ASSERT_NE(png_image_finish_read(&reader, nullptr, rgb.data(), 0, nullptr), 0);
  EXPECT_EQ(rgb, image.rgb);
}

TEST(Png, EncodingIsAFunctionOfItsArguments) {
  const Image image = Noise(40, 40);
  EXPECT_EQ(MustEncode(image, {{"a", "b"}}), MustEncode(image, {{"a", "b"}}));
}

TEST(Png, AsciiTextIsPlainAndOtherTextInternational) {
  const auto contains = [](const std::vector<uint8_t>& file, const std::string& word) {
    return std::string(file.begin(), file.end()).find(word) != std::string::npos;
  };
  const std::vector<uint8_t> ascii = MustEncode(Noise(1, 1), {{"prompt", "plain words"}});
  EXPECT_TRUE(contains(ascii, std::string("tEXtprompt\0plain words", 22)));
  const std::vector<uint8_t> international = MustEncode(Noise(1, 1), {{"prompt", "caf\u00e9"}});
  EXPECT_TRUE(contains(international, "iTXtprompt"));
  EXPECT_TRUE(contains(international, "caf\u00e9"));
}

TEST(Png, RefusesImagesThatContradictThemselves) {
  Image empty;
  EXPECT_EQ(EncodePng(empty, {}).error().code, ErrorCode::kInvalidArgument);
  Image negative = Noise(4, 4);
  negative.width = -4;
  EXPECT_EQ(EncodePng(negative, {}).error().got, "-4x4");
  Image small = Noise(4, 4);
  small.rgb.pop_back();
  const Result<std::vector<uint8_t>> file = EncodePng(small, {});
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().Message(), "encode PNG: rgb: got 47 bytes, wanted 4*4*3 bytes");
}

TEST(Png, RefusesBadKeywordsAndText) {
  const Image image = Noise(2, 2);
  for (const std::string& keyword :
       {std::string(), std::string(80, 'k'), std::string(" lead"), std::string("trail "),
        std::string("two  spaces"), std::string("tab\t"), std::string("caf\u00e9")}) {
    const Result<std::vector<uint8_t>> file = EncodePng(image, {{keyword, "text"}});
    ASSERT_FALSE(file.ok()) << keyword;
    EXPECT_EQ(file.error().argument, "text keyword");
  }
  EXPECT_TRUE(EncodePng(image, {{std::string(79, 'k'), "text"}}).ok());
  for (const std::string& text : {std::string("a\0b", 3), std::string("\xff\xfe")}) {
    const Result<std::vector<uint8_t>> file = EncodePng(image, {{"prompt", text}});
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().argument, "text of 'prompt'");
  }
}

TEST(Png, EveryCutIsCorrupt) {
  const std::vector<uint8_t> whole = MustEncode(Noise(9, 5), {{"prompt", "caf\u00e9"}});
  for (size_t size = 0; size < whole.size(); ++size) {
    const Result<DecodedPng> decoded = DecodePng({whole.begin(), whole.begin() + size});
    ASSERT_FALSE(decoded.ok()) << size;
    EXPECT_EQ(decoded.error().code, ErrorCode::kCorrupt) << size;
  }
}

TEST(Png, FlippedBitsNeverCrashNorChangePixelsUnseen) {
  const Image image = Noise(4, 2);
  const std::vector<uint8_t> whole = MustEncode(image, {{"prompt", "words"}});
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::vector<uint8_t> damaged = whole;
    damaged[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    const Result<DecodedPng> decoded = DecodePng(damaged);
    // A checksum guards every chunk; only damage to ancillary chunks (text) may pass.
    if (!decoded.ok()) continue;
    EXPECT_EQ(decoded->image.rgb, image.rgb) << bit;
  }
}

TEST(Png, SizesThatTheFileCannotHoldAreRefusedBeforeAllocating) {
  std::vector<uint8_t> file = MustEncode(Noise(1, 1));
  // IHDR's width and height become 2^31 - 1; its checksum is recomputed by the definition.
  const uint8_t sides[] = {0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff};
  std::memcpy(&file[16], sides, sizeof(sides));
  uint32_t crc = 0xffffffffU;
  for (size_t i = 12; i < 29; ++i) {
    crc ^= file[i];
    for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xedb88320U : 0U);
  }
  crc = ~crc;
  for (int k = 0; k < 4; ++k) file[29 + k] = static_cast<uint8_t>(crc >> (24 - 8 * k));
  const Result<DecodedPng> decoded = DecodePng(file);
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(decoded.error().got.find("2147483647x2147483647"), std::string::npos);
}

TEST(Png, OtherFilesAreNamed) {
  const std::string page = "<!DOCTYPE html><html></html>";
  const Result<DecodedPng> html = DecodePng({page.begin(), page.end()});
  ASSERT_FALSE(html.ok());
  EXPECT_EQ(html.error().got, "a file without the PNG signature");
  for (const auto& [color_type, depth] : {std::pair{PNG_COLOR_TYPE_GRAY, 8},
                                          {PNG_COLOR_TYPE_RGB_ALPHA, 8},
                                          {PNG_COLOR_TYPE_RGB, 16}}) {
    const Result<DecodedPng> decoded = DecodePng(ForeignPng(color_type, depth, false, Noise(4, 4)));
    ASSERT_FALSE(decoded.ok());
    EXPECT_EQ(decoded.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(decoded.error().wanted, "bit depth 8, colour type 2 (RGB)");
  }
}

TEST(Png, ReadsInterlacedRowsAndCompressedLatin1Text) {
  const Image image = Noise(13, 11);
  const Result<DecodedPng> decoded = DecodePng(ForeignPng(PNG_COLOR_TYPE_RGB, 8, true, image));
  ASSERT_TRUE(decoded.ok()) << decoded.error().Message();
  EXPECT_EQ(decoded->image.rgb, image.rgb);
  EXPECT_EQ(decoded->text, (TextChunks{{"Title", "caf\u00e9"}}));
}

}  // namespace
}  // namespace segue
