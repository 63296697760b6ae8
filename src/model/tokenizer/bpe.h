// Byte-pair encoding over bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "segue/status.h"

namespace segue::model {

// What the files say: token texts in the byte alphabet (GPT-2's printable stand-ins for bytes)
// with their ids, and merges in the order of their ranks.
struct BpeFiles {
  std::vector<std::pair<std::string, int64_t>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;
};

// Const after Build; any number of threads may encode.
class Bpe {
 public:
  // Errors (kCorrupt): an id out of range or used twice, a byte without a token, a merge whose
  // parts or whose result the vocabulary lacks, a merge that occurs twice. `where` is the file.
  static Result<Bpe> Build(const BpeFiles& files, const std::string& where);

  // Appends the ids of one word: its bytes, merged pair by pair, lowest rank first, leftmost first
  // among equals. Takes n log n steps for n bytes.
  void EncodeWord(std::string_view word, std::vector<int32_t>* ids) const;

  int32_t id_bound() const { return id_bound_; }

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t id = 0;  // of the merged token
  };
  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }

  std::array<int32_t, 256> byte_ids_{};
  std::unordered_map<uint64_t, Merge> merges_;
  int32_t id_bound_ = 0;
};

// The stand-in of a byte: bytes 33..126, 161..172 and 174..255 are their own, the other 68 are
// U+0100, U+0101, ... in ascending order (GPT-2's byte alphabet).
std::string ByteToken(uint8_t byte);

}  // namespace segue::model
