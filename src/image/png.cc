// PNG by libpng.
//
// libpng reports an error by calling a function that may not return. Ours stores the message and
// jumps back to Guarded(), the one place that calls setjmp. Two rules keep the jump well defined
// in C++: the functions it leaves hold no object with a destructor (everything that owns memory
// lives in the caller of Guarded), and no exception passes through libpng's frames.
#include <png.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "segue/image.h"
#include "segue/utf8.h"

namespace segue {
namespace {

constexpr char kEncode[] = "encode PNG";
constexpr char kDecode[] = "decode PNG";
constexpr size_t kSignatureBytes = 8;
constexpr size_t kMaxKeywordBytes = 79;
// The format's own limit on a side (PNG specification 11.2.2) fits an int.
constexpr int kMaxSide = std::numeric_limits<int>::max();
// Text chunks together are small change beside pixels; a file that claims more is refused.
constexpr png_alloc_size_t kMaxChunkBytes = png_alloc_size_t{64} << 20;
// One DEFLATE symbol of at least 1 bit yields at most 258 bytes, and two symbols of one bit each
// (length, distance) are needed: at most 1032 bytes out for each byte in.
constexpr uint64_t kMaxInflateRatio = 1032;

// All that a libpng callback touches. It outlives every jump.
struct Session {
  png_structp png = nullptr;
  png_infop info = nullptr;
  char message[160] = {};
  // Writing: where the bytes go. Reading: where they come from, and how far we are.
  std::vector<uint8_t>* sink = nullptr;
  const std::vector<uint8_t>* source = nullptr;
  size_t position = 0;
  bool out_of_memory = false;
};

[[noreturn]] void OnError(png_structp png, png_const_charp message) {
  auto* session = static_cast<Session*>(png_get_error_ptr(png));
  std::snprintf(session->message, sizeof(session->message), "%s", message);
  png_longjmp(png, 1);
}

void OnWarning(png_structp /*png*/, png_const_charp /*message*/) {}

// False: libpng failed, and session->message says why.
bool Guarded(Session* session, void (*body)(Session*, void*), void* argument) {
  if (setjmp(png_jmpbuf(session->png))) return false;
  body(session, argument);
  return true;
}

void AppendBytes(png_structp png, png_bytep bytes, size_t count) {
  auto* session = static_cast<Session*>(png_get_io_ptr(png));
  bool stored = true;
  try {
    session->sink->insert(session->sink->end(), bytes, bytes + count);
  } catch (const std::bad_alloc&) {
    stored = false;
  }
  if (stored) return;
  session->out_of_memory = true;
  png_error(png, "out of memory");
}

void TakeBytes(png_structp png, png_bytep bytes, size_t count) {
  auto* session = static_cast<Session*>(png_get_io_ptr(png));
  if (session->source->size() - session->position < count) png_error(png, "the file is cut short");
  std::memcpy(bytes, session->source->data() + session->position, count);
  session->position += count;
}

// libpng's state, released in every case.
class Codec {
 public:
  enum class Direction : uint8_t { kWrite, kRead };

  explicit Codec(Direction direction) : direction_(direction) {
    const auto create =
        direction == Direction::kWrite ? png_create_write_struct : png_create_read_struct;
    session_.png = create(PNG_LIBPNG_VER_STRING, &session_, OnError, OnWarning);
    if (session_.png != nullptr) session_.info = png_create_info_struct(session_.png);
  }
  ~Codec() {
    if (direction_ == Direction::kWrite) {
      png_destroy_write_struct(&session_.png, &session_.info);
    } else {
      png_destroy_read_struct(&session_.png, &session_.info, nullptr);
    }
  }
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  bool ready() const { return session_.info != nullptr; }
  Session& session() { return session_; }

 private:
  Direction direction_;
  Session session_;
};

Error OutOfMemory(const char* operation) {
  return {.code = ErrorCode::kOutOfMemory,
          .operation = operation,
          .got = "a failed allocation",
          .wanted = "memory for the picture"};
}

// --- encoding ---

// PNG specification 11.3.4.2, narrowed to ASCII so that a keyword means the same in every encoding.
bool IsKeyword(const std::string& keyword) {
  if (keyword.empty() || keyword.size() > kMaxKeywordBytes) return false;
  if (keyword.front() == ' ' || keyword.back() == ' ') return false;
  if (keyword.find("  ") != std::string::npos) return false;
  return std::all_of(keyword.begin(), keyword.end(), [](char c) { return c >= 32 && c <= 126; });
}

bool IsAscii(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

Status CheckImage(const Image& image) {
  if (image.width < 1 || image.height < 1) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = kEncode,
                 .argument = "size",
                 .got = std::to_string(image.width) + "x" + std::to_string(image.height),
                 .wanted = "at least 1x1"};
  }
  const uint64_t pixels = static_cast<uint64_t>(image.width) * static_cast<uint64_t>(image.height);
  if (pixels > std::numeric_limits<size_t>::max() / 3 || image.rgb.size() != pixels * 3) {
    return Error{
        .code = ErrorCode::kInvalidArgument,
        .operation = kEncode,
        .argument = "rgb",
        .got = std::to_string(image.rgb.size()) + " bytes",
        .wanted = std::to_string(image.width) + "*" + std::to_string(image.height) + "*3 bytes"};
  }
  return {};
}

Status CheckText(const TextChunks& text) {
  for (const auto& [keyword, value] : text) {
    if (!IsKeyword(keyword)) {
      return Error{.code = ErrorCode::kInvalidArgument,
                   .operation = kEncode,
                   .argument = "text keyword",
                   .got = "'" + keyword + "'",
                   .wanted =
                       "1 to 79 printable ASCII characters, no space at either end or twice "
                       "in a row"};
    }
    if (value.find('\0') != std::string::npos || FindInvalidUtf8(value).has_value()) {
      return Error{.code = ErrorCode::kInvalidArgument,
                   .operation = kEncode,
                   .argument = "text of '" + keyword + "'",
                   .got = "NUL or a byte that is not UTF-8",
                   .wanted = "UTF-8 without NUL"};
    }
  }
  return {};
}

// What Encode() below reads; all memory is owned by EncodePng.
struct EncodeJob {
  const Image* image;
  const png_text* text;
  int text_count;
};

void Encode(Session* session, void* argument) {
  const auto* job = static_cast<const EncodeJob*>(argument);
  const png_structp png = session->png;
  png_set_write_fn(png, session, AppendBytes, nullptr);
  png_set_user_limits(png, kMaxSide, kMaxSide);
  png_set_IHDR(png, session->info, static_cast<png_uint_32>(job->image->width),
               static_cast<png_uint_32>(job->image->height), 8, PNG_COLOR_TYPE_RGB,
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (job->text_count > 0) png_set_text(png, session->info, job->text, job->text_count);
  png_write_info(png, session->info);
  const size_t row_bytes = static_cast<size_t>(job->image->width) * 3;
  const uint8_t* row = job->image->rgb.data();
  for (int y = 0; y < job->image->height; ++y, row += row_bytes) png_write_row(png, row);
  png_write_end(png, session->info);
}

// Views into `text`, which must outlive them.
std::vector<png_text> TextViews(const TextChunks& text) {
  static char no_language[] = "";
  std::vector<png_text> views(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    png_text& view = views[i];
    // libpng's writer takes mutable pointers but copies what they point to.
    view.key = const_cast<char*>(text[i].first.c_str());
    view.text = const_cast<char*>(text[i].second.c_str());
    const bool ascii = IsAscii(text[i].second);
    view.compression = ascii ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE;
    (ascii ? view.text_length : view.itxt_length) = text[i].second.size();
    view.lang = no_language;
    view.lang_key = no_language;
  }
  return views;
}

// --- decoding ---

struct Header {
  png_uint_32 width = 0;
  png_uint_32 height = 0;
  int bit_depth = 0;
  int color_type = 0;
};

void ReadHeader(Session* session, void* argument) {
  auto* header = static_cast<Header*>(argument);
  const png_structp png = session->png;
  png_set_read_fn(png, session, TakeBytes);
  png_set_user_limits(png, kMaxSide, kMaxSide);
  png_set_chunk_malloc_max(png, kMaxChunkBytes);
  png_read_info(png, session->info);
  png_get_IHDR(png, session->info, &header->width, &header->height, &header->bit_depth,
               &header->color_type, nullptr, nullptr, nullptr);
}

void ReadPixels(Session* session, void* argument) {
  auto* image = static_cast<Image*>(argument);
  const png_structp png = session->png;
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, session->info);
  const size_t row_bytes = static_cast<size_t>(image->width) * 3;
  for (int pass = 0; pass < passes; ++pass) {
    uint8_t* row = image->rgb.data();
    for (int y = 0; y < image->height; ++y, row += row_bytes) png_read_row(png, row, nullptr);
  }
  png_read_end(png, session->info);
}

Error Corrupt(std::string got, std::string wanted) {
  return {.code = ErrorCode::kCorrupt,
          .operation = kDecode,
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

Status CheckHeader(const Header& header, size_t file_bytes) {
  if (header.bit_depth != 8 || header.color_type != PNG_COLOR_TYPE_RGB) {
    return Error{.code = ErrorCode::kUnsupported,
                 .operation = kDecode,
                 .argument = "pixel format",
                 .got = "bit depth " + std::to_string(header.bit_depth) + ", colour type " +
                        std::to_string(header.color_type),
                 .wanted = "bit depth 8, colour type 2 (RGB)"};
  }
  // Before anything of the claimed size is allocated. Every row also holds a filter byte. The
  // sides are at most 2^31, so the product fits 64 bits.
  const uint64_t raw = (uint64_t{3} * header.width + 1) * header.height;
  if (raw > kMaxInflateRatio * file_bytes) {
    return Corrupt(std::to_string(header.width) + "x" + std::to_string(header.height) + " in " +
                       std::to_string(file_bytes) + " bytes",
                   "no more pixels than that many bytes can hold");
  }
  return {};
}

std::string Latin1ToUtf8(const char* text, size_t bytes) {
  std::string utf8;
  for (size_t i = 0; i < bytes; ++i) {
    const auto c = static_cast<uint8_t>(text[i]);
    if (c < 0x80) {
      utf8 += static_cast<char>(c);
    } else {
      utf8 += static_cast<char>(0xC0 | (c >> 6));
      utf8 += static_cast<char>(0x80 | (c & 0x3F));
    }
  }
  return utf8;
}

// iTXt that is not UTF-8 after all is read as Latin-1, as tEXt is.
TextChunks CopyText(Session* session) {
  png_textp views = nullptr;
  int count = 0;
  png_get_text(session->png, session->info, &views, &count);
  TextChunks text;
  for (int i = 0; i < count; ++i) {
    const bool international = views[i].compression >= PNG_ITXT_COMPRESSION_NONE;
    const size_t bytes = international ? views[i].itxt_length : views[i].text_length;
    const std::string raw(views[i].text, bytes);
    const bool utf8 = international && !FindInvalidUtf8(raw).has_value();
    text.emplace_back(Latin1ToUtf8(views[i].key, std::strlen(views[i].key)),
                      utf8 ? raw : Latin1ToUtf8(raw.data(), raw.size()));
  }
  return text;
}

}  // namespace

Result<std::vector<uint8_t>> EncodePng(const Image& image, const TextChunks& text) {
  SEGUE_RETURN_IF_ERROR(CheckImage(image));
  SEGUE_RETURN_IF_ERROR(CheckText(text));
  Codec codec(Codec::Direction::kWrite);
  if (!codec.ready()) return OutOfMemory(kEncode);
  std::vector<uint8_t> file;
  const std::vector<png_text> views = TextViews(text);
  EncodeJob job{
      .image = &image, .text = views.data(), .text_count = static_cast<int>(views.size())};
  codec.session().sink = &file;
  if (!Guarded(&codec.session(), Encode, &job)) {
    if (codec.session().out_of_memory) return OutOfMemory(kEncode);
    return Error{
        .code = ErrorCode::kInternal, .operation = kEncode, .got = codec.session().message};
  }
  return file;
}

Result<DecodedPng> DecodePng(const std::vector<uint8_t>& file) {
  if (file.size() < kSignatureBytes || png_sig_cmp(file.data(), 0, kSignatureBytes) != 0) {
    return Corrupt("a file without the PNG signature", "a PNG file");
  }
  Codec codec(Codec::Direction::kRead);
  if (!codec.ready()) return OutOfMemory(kDecode);
  codec.session().source = &file;
  Header header;
  if (!Guarded(&codec.session(), ReadHeader, &header)) {
    return Corrupt(codec.session().message, "a whole PNG file");
  }
  SEGUE_RETURN_IF_ERROR(CheckHeader(header, file.size()));
  DecodedPng decoded;
  decoded.image.width = static_cast<int>(header.width);
  decoded.image.height = static_cast<int>(header.height);
  try {
    decoded.image.rgb.resize(size_t{3} * header.width * header.height);
  } catch (const std::bad_alloc&) {
    return OutOfMemory(kDecode);
  }
  if (!Guarded(&codec.session(), ReadPixels, &decoded.image)) {
    return Corrupt(codec.session().message, "a whole PNG file");
  }
  decoded.text = CopyText(&codec.session());
  return decoded;
}

}  // namespace segue
