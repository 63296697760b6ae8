// The files a Qwen2 tokenizer comes in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/bpe.h"
#include "segue/status.h"

namespace segue::model {

// A text that is one token wherever it occurs.
struct AddedToken {
  std::string content;
  int64_t id = 0;
  bool normalized = false;  // looked for in the composed text instead of the raw one
};

struct TokenizerFiles {
  BpeFiles bpe;
  std::vector<AddedToken> added;
  std::string where;  // the file the vocabulary came from
};

// The functions below take a file's text; `file` is for error messages only.

// tokenizer.json. Errors (kUnsupported): a normalizer other than NFC, another splitting pattern,
// a model other than plain BPE, added tokens that strip spaces or match whole words only.
Result<TokenizerFiles> ParseTokenizerJson(std::string_view text, const std::string& file);
// vocab.json and merges.txt.
Result<BpeFiles> ParseVocabularyAndMerges(std::string_view vocabulary, std::string_view merges,
                                          const std::string& vocabulary_file,
                                          const std::string& merges_file);
// tokenizer_config.json: checks what would change ids, and replaces `added` by the tokens of
// added_tokens_decoder where the file has that.
Status ParseTokenizerConfig(std::string_view text, const std::string& file,
                            std::vector<AddedToken>* added);
// added_tokens.json: {"<|im_end|>": 151645, ...}.
Result<std::vector<AddedToken>> ParseAddedTokens(std::string_view text, const std::string& file);

// vocab.json, merges.txt and the added tokens beside them, whether or not there is a
// tokenizer.json. kNotFound when either of the two is absent.
Result<TokenizerFiles> ReadOlderTokenizerFiles(const std::string& directory);

// tokenizer.json where the directory has one, the older files otherwise.
Result<TokenizerFiles> ReadTokenizerFiles(const std::string& directory);

}  // namespace segue::model
