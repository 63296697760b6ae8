#include "model/tokenizer/tokenizer_files.h"

#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "model/tokenizer/pre_tokenize.h"
#include "model/weights/json.h"
#include "model/weights/json_fields.h"

namespace segue::model {
namespace {

constexpr const char* kOperation = "load tokenizer";
constexpr int64_t kMaxBytes = JsonLimits().max_bytes;

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

Error Corrupt(const std::string& where, std::string got, std::string wanted) {
  return Error{ErrorCode::kCorrupt, kOperation, where, std::move(got), std::move(wanted)};
}

// The flags of an added token that the engine does not do, and the one it does.
void ReadFlags(JsonFields& fields, AddedToken* token) {
  fields.OnlyBool("single_word", false, "not supported");
  fields.OnlyBool("lstrip", false, "not supported");
  fields.OnlyBool("rstrip", false, "not supported");
  fields.Read("normalized", &token->normalized);
}

void CheckNormalizer(const Json& json, const std::string& file, JsonFields& root) {
  if (!root.Has("normalizer")) {
    return root.Fail(ErrorCode::kUnsupported, "normalizer", "nothing", "\"NFC\"");
  }
  JsonFields normalizer(*json.Find("normalizer"), file, "normalizer");
  std::string type;
  normalizer.Read("type", &type);
  if (type != "NFC") {
    root.Fail(ErrorCode::kUnsupported, "normalizer.type", Quote(type), "\"NFC\"");
  }
}

// Only one that adds no ids: ByteLevel, which trims offsets, or a template of the text alone.
void CheckPostProcessor(const Json& json, JsonFields& root) {
  const Json* type = json.Find("type");
  const std::string name = type == nullptr || type->AsString() == nullptr ? "" : *type->AsString();
  if (name == "ByteLevel") return;
  const Json* single = json.Find("single");
  const bool plain = name == "TemplateProcessing" && single != nullptr &&
                     single->AsArray() != nullptr && single->AsArray()->size() == 1 &&
                     single->AsArray()->front().Find("Sequence") != nullptr;
  if (plain) return;
  root.Fail(ErrorCode::kUnsupported, "post_processor", name.empty() ? "another kind" : name,
            "one that adds no ids");
}

// A Split by Qwen2's pattern, then the byte alphabet.
Status CheckPreTokenizer(const Json& json, const std::string& file) {
  const std::string where = file + ": pre_tokenizer";
  const Json* pre_tokenizer = json.Find("pre_tokenizer");
  const Json* list = pre_tokenizer == nullptr ? nullptr : pre_tokenizer->Find("pretokenizers");
  if (list == nullptr || list->AsArray() == nullptr || list->AsArray()->size() != 2) {
    return Error{ErrorCode::kUnsupported, kOperation, where, "another kind",
                 "a Sequence of Split and ByteLevel"};
  }
  JsonFields split((*list->AsArray())[0], file, "pre_tokenizer.pretokenizers[0]");
  split.OnlyString("type", "Split");
  split.OnlyString("behavior", "Isolated");
  split.OnlyBool("invert", false, "Qwen2's splitting");
  SEGUE_RETURN_IF_ERROR(split.status());
  const Json* pattern = (*list->AsArray())[0].Find("pattern");
  const Json* regex = pattern == nullptr ? nullptr : pattern->Find("Regex");
  if (regex == nullptr || regex->AsString() == nullptr || *regex->AsString() != kSplitPattern) {
    return Error{ErrorCode::kUnsupported, kOperation, where + ".pretokenizers[0].pattern.Regex",
                 regex == nullptr ? "nothing" : regex->Describe(),
                 "Qwen2's pattern, " + std::string(kSplitPattern)};
  }
  JsonFields byte_level((*list->AsArray())[1], file, "pre_tokenizer.pretokenizers[1]");
  byte_level.OnlyString("type", "ByteLevel");
  byte_level.OnlyBool("add_prefix_space", false, "Qwen2 adds none");
  byte_level.OnlyBool("use_regex", false, "the Split before it does that");
  return byte_level.status();
}

Status ReadVocabulary(const Json& json, const std::string& where, BpeFiles* files) {
  if (json.AsObject() == nullptr) return Corrupt(where, json.Describe(), "an object");
  files->vocabulary.reserve(json.AsObject()->size());
  for (const auto& [token, id] : *json.AsObject()) {
    if (id.AsInteger() == nullptr) {
      return Corrupt(where + ": " + Quote(token), id.Describe(), "an integer");
    }
    files->vocabulary.emplace_back(token, *id.AsInteger());
  }
  return {};
}

// "left right", exactly one space.
Status AddMerge(std::string_view line, const std::string& where, BpeFiles* files) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string_view::npos) {
    return Corrupt(where, Quote(line), "two tokens and one space between them");
  }
  files->merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  return {};
}

// Either form of tokenizer.json: "left right", or ["left", "right"].
Status ReadMerges(const Json& json, const std::string& where, BpeFiles* files) {
  if (json.AsArray() == nullptr) return Corrupt(where, json.Describe(), "an array");
  for (const Json& merge : *json.AsArray()) {
    const std::string place = where + "[" + std::to_string(files->merges.size()) + "]";
    if (merge.AsString() != nullptr) {
      SEGUE_RETURN_IF_ERROR(AddMerge(*merge.AsString(), place, files));
      continue;
    }
    const Json::Array* pair = merge.AsArray();
    if (pair == nullptr || pair->size() != 2 || (*pair)[0].AsString() == nullptr ||
        (*pair)[1].AsString() == nullptr) {
      return Corrupt(place, merge.Describe(), "two tokens");
    }
    files->merges.emplace_back(*(*pair)[0].AsString(), *(*pair)[1].AsString());
  }
  return {};
}

Status ReadModel(const Json& json, const std::string& file, BpeFiles* files) {
  JsonFields model(json, file, "model");
  model.OnlyString("type", "BPE");
  model.OnlyString("continuing_subword_prefix", "");
  model.OnlyString("end_of_word_suffix", "");
  model.OnlyBool("byte_fallback", false, "plain BPE");
  model.OnlyBool("ignore_merges", false, "plain BPE");
  if (model.Has("dropout")) {
    model.Fail(ErrorCode::kUnsupported, "dropout", model.Member("dropout").Describe(), "null");
  }
  if (model.status().ok() && (!model.Has("vocab") || !model.Has("merges"))) {
    model.Fail(ErrorCode::kNotFound, model.Has("vocab") ? "merges" : "vocab", "nothing",
               "a vocabulary and its merges");
  }
  SEGUE_RETURN_IF_ERROR(model.status());
  SEGUE_RETURN_IF_ERROR(ReadVocabulary(model.Member("vocab"), file + ": model.vocab", files));
  return ReadMerges(model.Member("merges"), file + ": model.merges", files);
}

Status ReadAddedTokens(const Json& json, const std::string& file, std::vector<AddedToken>* added) {
  const Json::Array* array = json.AsArray();
  if (array == nullptr) return Corrupt(file + ": added_tokens", json.Describe(), "an array");
  for (size_t i = 0; i < array->size(); ++i) {
    AddedToken token;
    JsonFields fields((*array)[i], file, "added_tokens[" + std::to_string(i) + "]");
    fields.Read("content", &token.content);
    token.id = -1;  // refused by the caller when the file gives none
    fields.Read("id", &token.id);
    ReadFlags(fields, &token);
    SEGUE_RETURN_IF_ERROR(fields.status());
    added->push_back(std::move(token));
  }
  return {};
}

}  // namespace

Result<TokenizerFiles> ParseTokenizerJson(std::string_view text, const std::string& file) {
  SEGUE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, file));
  JsonFields root(json, file);
  CheckNormalizer(json, file, root);
  if (root.Has("post_processor")) CheckPostProcessor(root.Member("post_processor"), root);
  if (root.status().ok() && !root.Has("model")) {
    root.Fail(ErrorCode::kNotFound, "model", "nothing", "a BPE model");
  }
  SEGUE_RETURN_IF_ERROR(root.status());
  SEGUE_RETURN_IF_ERROR(CheckPreTokenizer(json, file));
  TokenizerFiles files;
  files.where = file;
  SEGUE_RETURN_IF_ERROR(ReadModel(root.Member("model"), file, &files.bpe));
  if (root.Has("added_tokens")) {
    SEGUE_RETURN_IF_ERROR(ReadAddedTokens(root.Member("added_tokens"), file, &files.added));
  }
  return files;
}

Result<BpeFiles> ParseVocabularyAndMerges(std::string_view vocabulary, std::string_view merges,
                                          const std::string& vocabulary_file,
                                          const std::string& merges_file) {
  BpeFiles files;
  SEGUE_ASSIGN_OR_RETURN(const Json json, ParseJson(vocabulary, vocabulary_file));
  SEGUE_RETURN_IF_ERROR(ReadVocabulary(json, vocabulary_file, &files));
  for (int64_t number = 1; !merges.empty(); ++number) {
    std::string_view line = merges.substr(0, merges.find('\n'));
    merges.remove_prefix(std::min(line.size() + 1, merges.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    SEGUE_RETURN_IF_ERROR(AddMerge(line, merges_file + ": line " + std::to_string(number), &files));
  }
  return files;
}

Status ParseTokenizerConfig(std::string_view text, const std::string& file,
                            std::vector<AddedToken>* added) {
  SEGUE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, file));
  JsonFields root(json, file);
  std::string tokenizer_class = "Qwen2Tokenizer";
  root.Read("tokenizer_class", &tokenizer_class);
  if (tokenizer_class != "Qwen2Tokenizer" && tokenizer_class != "Qwen2TokenizerFast") {
    root.Fail(ErrorCode::kUnsupported, "tokenizer_class", Quote(tokenizer_class),
              "\"Qwen2Tokenizer\"");
  }
  root.OnlyBool("add_prefix_space", false, "Qwen2 adds none");
  root.OnlyBool("add_bos_token", false, "Qwen2 adds none");
  root.OnlyBool("add_eos_token", false, "Qwen2 adds none");
  root.OnlyBool("split_special_tokens", false, "added tokens are atomic");
  SEGUE_RETURN_IF_ERROR(root.status());
  if (!root.Has("added_tokens_decoder")) return {};
  const Json& decoder = root.Member("added_tokens_decoder");
  if (decoder.AsObject() == nullptr) {
    return Corrupt(file + ": added_tokens_decoder", decoder.Describe(), "an object");
  }
  added->clear();
  for (const auto& [key, value] : *decoder.AsObject()) {
    AddedToken token;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size()) {
      return Corrupt(file + ": added_tokens_decoder", "the key " + Quote(key), "an id");
    }
    JsonFields fields(value, file, "added_tokens_decoder." + key);
    fields.Read("content", &token.content);
    ReadFlags(fields, &token);
    SEGUE_RETURN_IF_ERROR(fields.status());
    added->push_back(std::move(token));
  }
  return {};
}

Result<std::vector<AddedToken>> ParseAddedTokens(std::string_view text, const std::string& file) {
  SEGUE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, file));
  if (json.AsObject() == nullptr) return Corrupt(file, json.Describe(), "an object");
  std::vector<AddedToken> added;
  for (const auto& [content, id] : *json.AsObject()) {
    if (id.AsInteger() == nullptr) {
      return Corrupt(file + ": " + Quote(content), id.Describe(), "an integer");
    }
    added.push_back({content, *id.AsInteger()});
  }
  return added;
}

Result<TokenizerFiles> ReadOlderTokenizerFiles(const std::string& directory) {
  const std::string vocabulary_file = directory + "/vocab.json";
  const std::string merges_file = directory + "/merges.txt";
  const std::string added_file = directory + "/added_tokens.json";
  const std::string config_file = directory + "/tokenizer_config.json";
  SEGUE_ASSIGN_OR_RETURN(const std::string vocabulary, ReadTextFile(vocabulary_file, kMaxBytes));
  SEGUE_ASSIGN_OR_RETURN(const std::string merges, ReadTextFile(merges_file, kMaxBytes));
  TokenizerFiles files;
  files.where = vocabulary_file;
  SEGUE_ASSIGN_OR_RETURN(
      files.bpe, ParseVocabularyAndMerges(vocabulary, merges, vocabulary_file, merges_file));
  if (Exists(added_file)) {
    SEGUE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(added_file, kMaxBytes));
    SEGUE_ASSIGN_OR_RETURN(files.added, ParseAddedTokens(text, added_file));
  }
  if (Exists(config_file)) {
    SEGUE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(config_file, kMaxBytes));
    SEGUE_RETURN_IF_ERROR(ParseTokenizerConfig(text, config_file, &files.added));
  }
  return files;
}

Result<TokenizerFiles> ReadTokenizerFiles(const std::string& directory) {
  const std::string json_file = directory + "/tokenizer.json";
  if (!Exists(json_file)) {
    if (Exists(directory + "/vocab.json") && Exists(directory + "/merges.txt")) {
      return ReadOlderTokenizerFiles(directory);
    }
    return Error{ErrorCode::kNotFound, kOperation, directory, "neither",
                 "tokenizer.json, or vocab.json and merges.txt"};
  }
  SEGUE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(json_file, kMaxBytes));
  SEGUE_ASSIGN_OR_RETURN(TokenizerFiles files, ParseTokenizerJson(text, json_file));
  // It is complete in itself; the configuration beside it must only not ask for anything else.
  const std::string config_file = directory + "/tokenizer_config.json";
  if (Exists(config_file)) {
    std::vector<AddedToken> configured;
    SEGUE_ASSIGN_OR_RETURN(const std::string config, ReadTextFile(config_file, kMaxBytes));
    SEGUE_RETURN_IF_ERROR(ParseTokenizerConfig(config, config_file, &configured));
  }
  return files;
}

}  // namespace segue::model
