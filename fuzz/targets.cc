#include "fuzz/targets.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/bpe.h"
#include "model/tokenizer/pre_tokenize.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_files.h"
#include "model/tokenizer/unicode.h"
#include "model/weights/config_files.h"
#include "model/weights/finite_scan.h"
#include "model/weights/tensor_file.h"
#include "model/weights/tensor_table.h"

namespace segue::fuzz {
namespace {

void Check(bool holds) {
  if (!holds) __builtin_trap();
}

std::string_view Text(Span<const uint8_t> input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

// An error has a message; a value has passed the checks behind it.
template <typename T>
void CheckResult(const Result<T>& result) {
  if (!result.ok()) Check(!result.error().Message().empty());
}

// Bytes as tokens, a few merges, added tokens of which one begins another.
model::TokenizerFiles SmallFiles() {
  model::TokenizerFiles files;
  files.where = "small";
  for (int byte = 0; byte < 256; ++byte) {
    files.bpe.vocabulary.emplace_back(model::ByteToken(static_cast<uint8_t>(byte)), byte);
  }
  files.bpe.merges = {{"a", "a"},   {"aa", "a"},          {"a", "b"},
                      {"aa", "aa"}, {"\u0120", "a"},      {"e", "r"},
                      {"'", "s"},   {"\u0120", "\u0120"}, {"\u00c3", "\u00a9"}};
  for (const auto& [left, right] : files.bpe.merges) {
    files.bpe.vocabulary.emplace_back(left + right,
                                      static_cast<int64_t>(files.bpe.vocabulary.size()));
  }
  files.added = {{"<|a|>", 1000, false}, {"<|a|>b", 1001, false}, {"<\u00e9>", 1002, true}};
  return files;
}

// The bytes of every id of the files, by id.
std::vector<std::string> Spellings(const model::TokenizerFiles& files) {
  std::vector<std::string> spellings;
  for (const auto& [token, id] : files.bpe.vocabulary) {
    std::string bytes;
    for (std::string_view rest = token; !rest.empty();) {
      for (int byte = 0; byte < 256; ++byte) {
        const std::string stand_in = model::ByteToken(static_cast<uint8_t>(byte));
        if (!rest.starts_with(stand_in)) continue;
        bytes += static_cast<char>(byte);
        rest.remove_prefix(stand_in.size());
        break;
      }
    }
    spellings.resize(std::max(spellings.size(), static_cast<size_t>(id) + 1));
    spellings[static_cast<size_t>(id)] = bytes;
  }
  for (const model::AddedToken& token : files.added) {
    spellings.resize(std::max(spellings.size(), static_cast<size_t>(token.id) + 1));
    spellings[static_cast<size_t>(token.id)] = token.content;
  }
  return spellings;
}

}  // namespace

void Safetensors(Span<const uint8_t> input) {
  const auto header = model::ParseTensorHeader(input, "fuzz");
  CheckResult(header);
  if (!header.ok()) return;
  int64_t end = -1;
  for (const model::TensorEntry& entry : header->entries) {
    Check(entry.bytes >= 0 && entry.offset >= 8);
    Check(end < 0 || entry.offset == end);
    end = entry.offset + entry.bytes;
    Check(end <= static_cast<int64_t>(input.size()));
    if (!entry.dtype || entry.dtype == DType::kI64 || entry.dtype == DType::kI32 ||
        entry.dtype == DType::kU8) {
      continue;
    }
    const auto bytes =
        input.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes));
    const model::NonFiniteCount bad = model::CountNonFinite(bytes, *entry.dtype);
    Check(bad.count <= entry.shape.NumElements() && (bad.count == 0) == (bad.first < 0));
  }
  Check(end < 0 || end == static_cast<int64_t>(input.size()));
}

void Json(Span<const uint8_t> input) {
  if (input.empty()) return;
  const std::string_view text = Text(input.subspan(1));
  std::vector<model::AddedToken> added;
  switch (input[0] % 10) {
    case 0:
      return CheckResult(model::ParseWeightIndex(text, "fuzz"));
    case 1:
      return CheckResult(model::ParseModelIndex(text, "fuzz"));
    case 2:
      return CheckResult(model::ParseDitConfig(text, "fuzz"));
    case 3:
      return CheckResult(model::ParseTextEncoderConfig(text, "fuzz"));
    case 4:
      return CheckResult(model::ParseVaeConfig(text, "fuzz"));
    case 5:
      return CheckResult(model::ParseFlowMatchConfig(text, "fuzz"));
    case 6:
      return CheckResult(model::ParseModelDefaults(text, "fuzz"));
    case 7:
      return CheckResult(model::ParseTokenizerConfig(text, "fuzz", &added));
    case 8:
      return CheckResult(model::ParseAddedTokens(text, "fuzz"));
    default: {
      // A vocabulary, a zero byte, merges.
      const size_t middle = std::min(text.find('\0'), text.size());
      return CheckResult(model::ParseVocabularyAndMerges(
          text.substr(0, middle), text.substr(std::min(middle + 1, text.size())), "v", "m"));
    }
  }
}

void Tokenizer(Span<const uint8_t> input) {
  static const model::TokenizerFiles files = SmallFiles();
  static const model::Tokenizer tokenizer = model::Tokenizer::FromFiles(files).value();
  static const std::vector<std::string> spellings = Spellings(files);
  const std::string_view text = Text(input);
  const auto ids = tokenizer.Encode(text);
  Check(ids.ok() == model::CheckUtf8(text).ok());
  if (!ids.ok()) return;
  size_t covered = 0;
  for (std::string_view word : model::SplitWords(text)) {
    Check(!word.empty() && word.data() == text.data() + covered);
    covered += word.size();
  }
  Check(covered == text.size());
  // Ids spell the composed text. Around an added token composition stops, so only without one.
  if (text.find("<|a|>") == std::string_view::npos) {
    std::string spelt;
    for (int32_t id : *ids) spelt += spellings[static_cast<size_t>(id)];
    Check(spelt == model::ComposeNfc(text).value());
  }
  const auto prompt = tokenizer.EncodePrompt(text, 1 + static_cast<int>(input.size() % 1024));
  Check(prompt.ok() && prompt->rows >= 1 && prompt->rows <= prompt->untruncated_rows);
  Check(prompt->ids.size() == static_cast<size_t>(prompt->dropped + prompt->rows));
}

void TokenizerJson(Span<const uint8_t> input) {
  const auto files = model::ParseTokenizerJson(Text(input), "fuzz");
  CheckResult(files);
  if (!files.ok()) return;
  const auto tokenizer = model::Tokenizer::FromFiles(*files);
  CheckResult(tokenizer);
  if (!tokenizer.ok()) return;
  const auto ids = tokenizer->Encode("a caf\u00e9 <|im_end|>\n 1");
  Check(ids.ok());
  for (int32_t id : *ids) Check(id >= 0 && id < tokenizer->id_bound());
}

}  // namespace segue::fuzz
