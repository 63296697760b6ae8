#include "model/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "model/tokenizer/bpe.h"
#include "model/tokenizer/pre_tokenize.h"
#include "model/tokenizer/tokenizer_files.h"
#include "model/tokenizer/unicode.h"
#include "model/weights/json.h"

namespace segue::model {
namespace {

// The pipeline's prompt_template_encode, on both sides of the prompt.
constexpr std::string_view kTemplatePrefix =
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, "
    "quantity, text, spatial relationships of the objects and background:<|im_end|>\n"
    "<|im_start|>user\n";
constexpr std::string_view kTemplateSuffix = "<|im_end|>\n<|im_start|>assistant\n";

// Far above any prompt, and positions within a text stay 32-bit.
constexpr size_t kMaxTextBytes = size_t{16} << 20;

// Finds added tokens in a text: the leftmost, and of those the longest.
class AddedTokenMatcher {
 public:
  void Add(const AddedToken& token) {
    by_first_byte_[static_cast<uint8_t>(token.content.front())].push_back(token);
  }
  void Finish() {
    for (auto& tokens : by_first_byte_) {
      std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) {
        return a.content.size() > b.content.size();
      });
    }
  }

  // Calls on_text for the stretches between tokens (none empty) and on_token for the ids.
  template <typename OnText, typename OnToken>
  Status Split(std::string_view text, OnText on_text, OnToken on_token) const {
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
      const AddedToken* token = MatchAt(text.substr(at));
      if (token == nullptr) {
        ++at;
        continue;
      }
      if (at > begin) SEGUE_RETURN_IF_ERROR(on_text(text.substr(begin, at - begin)));
      on_token(static_cast<int32_t>(token->id));
      at += token->content.size();
      begin = at;
    }
    if (begin < text.size()) SEGUE_RETURN_IF_ERROR(on_text(text.substr(begin)));
    return {};
  }

 private:
  const AddedToken* MatchAt(std::string_view text) const {
    for (const AddedToken& token : by_first_byte_[static_cast<uint8_t>(text.front())]) {
      if (text.starts_with(token.content)) return &token;
    }
    return nullptr;
  }

  std::array<std::vector<AddedToken>, 256> by_first_byte_;
};

}  // namespace

struct Tokenizer::Impl {
  Bpe bpe;
  AddedTokenMatcher raw;       // looked for before composition
  AddedTokenMatcher composed;  // looked for after it
  int32_t id_bound = 0;

  Status AddTokens(const std::vector<AddedToken>& added, const std::string& where);
  Status EncodeComposed(std::string_view text, std::vector<int32_t>* ids) const;
  Status EncodeRaw(std::string_view text, std::vector<int32_t>* ids) const;
};

Status Tokenizer::Impl::AddTokens(const std::vector<AddedToken>& added, const std::string& where) {
  constexpr int64_t kMaxId = int64_t{1} << 24;
  std::set<std::string_view> contents;
  for (const AddedToken& token : added) {
    const std::string field = where + ": added token " + Quote(token.content);
    if (token.content.empty() || !contents.insert(token.content).second) {
      return Error{ErrorCode::kCorrupt, "load tokenizer", field,
                   token.content.empty() ? "an empty text" : "the same text twice",
                   "distinct texts"};
    }
    if (token.id < 0 || token.id >= kMaxId) {
      return Error{ErrorCode::kCorrupt, "load tokenizer", field, "id " + std::to_string(token.id),
                   "0.." + std::to_string(kMaxId - 1)};
    }
    (token.normalized ? composed : raw).Add(token);
    id_bound = std::max(id_bound, static_cast<int32_t>(token.id) + 1);
  }
  raw.Finish();
  composed.Finish();
  return {};
}

Status Tokenizer::Impl::EncodeComposed(std::string_view text, std::vector<int32_t>* ids) const {
  SEGUE_ASSIGN_OR_RETURN(const std::string nfc, ComposeNfc(text));
  return composed.Split(
      nfc,
      [&](std::string_view plain) -> Status {
        for (std::string_view word : SplitWords(plain)) bpe.EncodeWord(word, ids);
        return {};
      },
      [&](int32_t id) { ids->push_back(id); });
}

Status Tokenizer::Impl::EncodeRaw(std::string_view text, std::vector<int32_t>* ids) const {
  return raw.Split(
      text, [&](std::string_view plain) { return EncodeComposed(plain, ids); },
      [&](int32_t id) { ids->push_back(id); });
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::Load(const std::string& directory) {
  SEGUE_ASSIGN_OR_RETURN(const TokenizerFiles files, ReadTokenizerFiles(directory));
  return FromFiles(files);
}

Result<Tokenizer> Tokenizer::FromFiles(const TokenizerFiles& files) {
  auto impl = std::make_unique<Impl>();
  SEGUE_ASSIGN_OR_RETURN(impl->bpe, Bpe::Build(files.bpe, files.where));
  impl->id_bound = impl->bpe.id_bound();
  SEGUE_RETURN_IF_ERROR(impl->AddTokens(files.added, files.where));
  return Tokenizer(std::move(impl));
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text) const {
  if (text.size() > kMaxTextBytes) {
    return Error{ErrorCode::kInvalidArgument, "encode text", "text",
                 std::to_string(text.size()) + " bytes",
                 "at most " + std::to_string(kMaxTextBytes)};
  }
  SEGUE_RETURN_IF_ERROR(CheckUtf8(text));
  std::vector<int32_t> ids;
  SEGUE_RETURN_IF_ERROR(impl_->EncodeRaw(text, &ids));
  return ids;
}

Result<PromptIds> Tokenizer::EncodePrompt(std::string_view prompt, int max_sequence_length) const {
  if (max_sequence_length < 1 || max_sequence_length > kTokenizerMaxLength) {
    return Error{ErrorCode::kInvalidArgument, "encode prompt", "max_sequence_length",
                 std::to_string(max_sequence_length), "1.." + std::to_string(kTokenizerMaxLength)};
  }
  // Checked apart from the template, so that an error's offset is one into the prompt.
  SEGUE_RETURN_IF_ERROR(CheckUtf8(prompt));
  std::string text(kTemplatePrefix);
  text.append(prompt).append(kTemplateSuffix);
  PromptIds result;
  SEGUE_ASSIGN_OR_RETURN(result.ids, Encode(text));
  const int64_t rows = static_cast<int64_t>(result.ids.size()) - kTemplatePrefixIds;
  if (rows < 1) {
    return Error{ErrorCode::kUnsupported, "encode prompt", "the template and the prompt",
                 std::to_string(result.ids.size()) + " ids",
                 "more than " + std::to_string(kTemplatePrefixIds)};
  }
  result.untruncated_rows = static_cast<int>(rows);
  result.rows = static_cast<int>(std::min<int64_t>(rows, max_sequence_length));
  result.truncated = result.rows < result.untruncated_rows;
  result.ids.resize(kTemplatePrefixIds + static_cast<size_t>(result.rows));
  return result;
}

Status Tokenizer::CheckTemplate() const {
  constexpr std::string_view kProbe = "a cat";
  SEGUE_ASSIGN_OR_RETURN(const auto prefix, Encode(kTemplatePrefix));
  SEGUE_ASSIGN_OR_RETURN(const auto suffix, Encode(kTemplateSuffix));
  SEGUE_ASSIGN_OR_RETURN(const auto probe, Encode(kProbe));
  std::string text(kTemplatePrefix);
  text.append(kProbe).append(kTemplateSuffix);
  SEGUE_ASSIGN_OR_RETURN(const auto whole, Encode(text));
  std::vector<int32_t> parts = prefix;
  parts.insert(parts.end(), probe.begin(), probe.end());
  parts.insert(parts.end(), suffix.begin(), suffix.end());
  if (prefix.size() == kTemplatePrefixIds && suffix.size() == kTemplateSuffixIds &&
      whole == parts) {
    return {};
  }
  return Error{ErrorCode::kUnsupported, "check tokenizer", "the prompt template",
               std::to_string(prefix.size()) + " ids before the prompt and " +
                   std::to_string(suffix.size()) + " after it" +
                   (whole == parts ? "" : ", merging with the prompt"),
               std::to_string(kTemplatePrefixIds) + " and " + std::to_string(kTemplateSuffixIds)};
}

int32_t Tokenizer::id_bound() const { return impl_->id_bound; }

}  // namespace segue::model
