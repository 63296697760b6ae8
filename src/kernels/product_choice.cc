#include "kernels/product_choice.h"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <tuple>

namespace segue::kernels {
namespace {

constexpr char kHead[] = "segue product choices 1";

uint64_t Fnv1a(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  return hash;
}

std::string Hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

Error Corrupt(std::string got, std::string wanted) {
  return {.code = ErrorCode::kCorrupt,
          .operation = "read product choices",
          .argument = "",
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

std::string FormatLine(const ProductForm& form, int64_t rows, const ProductChoice& choice) {
  std::ostringstream line;
  line << rows << ' ' << form.n << ' ' << form.k << ' ' << form.k_splits << ' ' << form.bias << ' '
       << form.transposed_weight << ' ' << static_cast<int>(form.epilogue) << ' '
       << DTypeName(form.y_dtype) << ' ' << choice.nanoseconds << ' ';
  for (const uint64_t word : choice.algorithm) line << Hex(word);
  line << '\n';
  return line.str();
}

// Whatever a line holds that FormatLine would have written otherwise is found by writing it again.
bool ParseLine(const std::string& line, ProductChoices* choices) {
  std::istringstream in(line);
  ProductForm form;
  ProductChoice choice;
  int64_t rows = 0;
  int epilogue = 0;
  std::string dtype;
  std::string algorithm;
  in >> rows >> form.n >> form.k >> form.k_splits >> form.bias >> form.transposed_weight >>
      epilogue >> dtype >> choice.nanoseconds >> algorithm;
  if (in.fail() || algorithm.size() != choice.algorithm.size() * 16) return false;
  if (algorithm.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
  for (size_t i = 0; i < choice.algorithm.size(); ++i) {
    choice.algorithm[i] = std::stoull(algorithm.substr(i * 16, 16), nullptr, 16);
  }
  form.epilogue = epilogue == 0 ? ProductEpilogue::kNone : ProductEpilogue::kGeluTanh;
  form.y_dtype = dtype == DTypeName(DType::kF32) ? DType::kF32 : DType::kBF16;
  return choices->emplace(std::pair{form, rows}, choice).second;
}

}  // namespace

std::string ProductForm::ToString() const {
  return "n " + std::to_string(n) + " k " + std::to_string(k) + " splits " +
         std::to_string(k_splits) + (bias ? " bias" : "") +
         (transposed_weight ? " transposed" : "") +
         (epilogue == ProductEpilogue::kGeluTanh ? " gelu" : "") +
         (y_dtype == DType::kF32 ? " to F32" : "");
}

Status CheckProductForm(const char* operation, const ProductForm& form) {
  const auto error = [&](const char* argument, int64_t got, const char* wanted) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = operation,
                 .argument = argument,
                 .got = std::to_string(got),
                 .wanted = wanted};
  };
  // 16 bytes, below which the tensor cores' fast loads do not go.
  if (form.n < 8 || form.n % 8 != 0) return error("n", form.n, "a multiple of 8, at least 8");
  if (form.k < 8 || form.k % 8 != 0) return error("k", form.k, "a multiple of 8, at least 8");
  if (form.k_splits < 1) return error("k_splits", form.k_splits, "at least 1");
  // 64: no algorithm steps through k in less, so pieces begin where every algorithm's steps do.
  if (form.k_splits > 1 && form.k % (64 * int64_t{form.k_splits}) != 0) {
    return error("k_splits", form.k_splits, "pieces of k that are a multiple of 64 long");
  }
  if (form.y_dtype == DType::kBF16 || form.y_dtype == DType::kF32) return {};
  return Error{.code = ErrorCode::kInvalidArgument,
               .operation = operation,
               .argument = "y",
               .got = DTypeName(form.y_dtype),
               .wanted = "BF16 or F32"};
}

int32_t FewRowSplits(int64_t n, int64_t k) {
  // Of 64 columns, the narrowest that read a weight at full speed: too few of them for 132 SMs.
  const int64_t tiles = n / 64;
  // Pieces of less than 4096 end before the launch that adds them has paid.
  const bool worth_it = tiles < 100 && k >= 8192 && k % 128 == 0;
  return worth_it ? 2 : 1;
}

int64_t ProductRowBucket(int64_t rows) {
  constexpr struct {
    int64_t up_to;
    int64_t step;
  } kSteps[] = {{16, 16}, {128, 32}, {1024, 64}, {16384, 16}};
  for (const auto& [up_to, step] : kSteps) {
    if (rows <= up_to) return (rows + step - 1) / step * step;
  }
  return 16384;
}

int64_t ProductRowsAtOnce(const ProductForm& form, int64_t workspace_bytes) {
  if (form.k_splits == 1) return int64_t{1} << 30;
  // Sums in float32 and a little for the library's own use.
  constexpr int64_t kOwn = 4096;
  const int64_t row_bytes = form.k_splits * form.n * int64_t{sizeof(float)};
  const int64_t rows = std::max<int64_t>(0, workspace_bytes - kOwn) / row_bytes;
  return rows >= 128 ? rows / 128 * 128 : rows / 16 * 16;
}

size_t WinningTime(Span<const double> times) {
  const double best = *std::min_element(times.begin(), times.end());
  size_t winner = 0;
  while (times[winner] > best * 1.01) ++winner;
  return winner;
}

std::string FormatProductChoices(const std::string& setting, const ProductChoices& choices) {
  std::string text = std::string(kHead) + "\nfor " + setting +
                     "\n# rows n k splits bias transposed epilogue y ns algorithm\n";
  for (const auto& [key, choice] : choices) text += FormatLine(key.first, key.second, choice);
  return text + "check " + Hex(Fnv1a(text)) + "\n";
}

Result<ProductChoices> ParseProductChoices(const std::string& setting, const std::string& text) {
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  if (line != kHead) return Corrupt("another first line", kHead);
  std::getline(in, line);
  if (line != "for " + setting) return Corrupt(line, "for " + setting);
  std::getline(in, line);  // the columns' names
  ProductChoices choices;
  while (std::getline(in, line) && line.substr(0, 6) != "check ") {
    if (!ParseLine(line, &choices)) return Corrupt("line '" + line + "'", "a choice");
  }
  if (FormatProductChoices(setting, choices) != text) {
    return Corrupt("bytes that were changed", "a file as it was written");
  }
  return choices;
}

std::string ProductChoicesFileName(const std::string& setting) {
  return "products-" + Hex(Fnv1a(setting)) + ".txt";
}

}  // namespace segue::kernels
