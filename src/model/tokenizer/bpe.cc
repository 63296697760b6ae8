#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "model/weights/json.h"

namespace segue::model {
namespace {

constexpr const char* kOperation = "load tokenizer";
// Ids are 32-bit and index an embedding; 2^24 is 100 times the real vocabulary.
constexpr int64_t kMaxId = int64_t{1} << 24;

bool StandsForItself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

}  // namespace

std::string ByteToken(uint8_t byte) {
  int code = byte;
  if (!StandsForItself(byte)) {
    code = 256;
    for (int lower = 0; lower < byte; ++lower) code += StandsForItself(lower) ? 0 : 1;
  }
  // All codes are below U+0144: one or two bytes of UTF-8.
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

Result<Bpe> Bpe::Build(const BpeFiles& files, const std::string& where) {
  const auto corrupt = [&where](const std::string& field, std::string got, std::string wanted) {
    return Error{ErrorCode::kCorrupt, kOperation, where + ": " + field, std::move(got),
                 std::move(wanted)};
  };
  Bpe bpe;
  std::unordered_map<std::string_view, int32_t> ids;
  ids.reserve(files.vocabulary.size());
  std::vector<bool> used;
  for (const auto& [token, id] : files.vocabulary) {
    if (id < 0 || id >= kMaxId) {
      return corrupt("vocabulary: " + Quote(token), "id " + std::to_string(id),
                     "0.." + std::to_string(kMaxId - 1));
    }
    if (static_cast<size_t>(id) >= used.size()) used.resize(static_cast<size_t>(id) + 1);
    if (used[static_cast<size_t>(id)]) {
      return corrupt("vocabulary: " + Quote(token), "id " + std::to_string(id) + ", which is taken",
                     "distinct ids");
    }
    used[static_cast<size_t>(id)] = true;
    ids.emplace(token, static_cast<int32_t>(id));
    bpe.id_bound_ = std::max(bpe.id_bound_, static_cast<int32_t>(id) + 1);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(ByteToken(static_cast<uint8_t>(byte)));
    if (found == ids.end()) {
      return corrupt("vocabulary", "no token for byte " + std::to_string(byte), "all 256 bytes");
    }
    bpe.byte_ids_[byte] = found->second;
  }
  bpe.merges_.reserve(files.merges.size());
  for (size_t rank = 0; rank < files.merges.size(); ++rank) {
    const auto& [left, right] = files.merges[rank];
    const std::string field = "merges[" + std::to_string(rank) + "]";
    const auto quoted = [&] { return Quote(std::string(left).append(" ").append(right)); };
    const auto left_id = ids.find(left);
    const auto right_id = ids.find(right);
    const auto merged_id = ids.find(left + right);
    if (left_id == ids.end() || right_id == ids.end() || merged_id == ids.end()) {
      return corrupt(field, quoted(), "two tokens whose union is a token");
    }
    const Merge merge = {static_cast<int32_t>(rank), merged_id->second};
    if (!bpe.merges_.emplace(Key(left_id->second, right_id->second), merge).second) {
      return corrupt(field, quoted() + ", which occurred before", "distinct merges");
    }
  }
  return bpe;
}

void Bpe::EncodeWord(std::string_view word, std::vector<int32_t>* ids) const {
  constexpr int32_t kNone = -1;
  struct Symbol {
    int32_t id = 0;
    int32_t previous = kNone;
    int32_t next = kNone;
    bool merged_away = false;
  };
  struct Candidate {
    int32_t rank = 0;
    int32_t position = 0;
    int32_t id = 0;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  const auto count = static_cast<int32_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[i] = {byte_ids_[static_cast<uint8_t>(word[i])], i - 1, i + 1 < count ? i + 1 : kNone};
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto find_merge = [&](int32_t left) -> const Merge* {
    const Symbol& symbol = symbols[left];
    if (symbol.merged_away || symbol.next == kNone) return nullptr;
    const auto found = merges_.find(Key(symbol.id, symbols[symbol.next].id));
    return found == merges_.end() ? nullptr : &found->second;
  };
  const auto push = [&](int32_t left) {
    if (left == kNone) return;
    if (const Merge* merge = find_merge(left)) candidates.push({merge->rank, left, merge->id});
  };
  for (int32_t i = 0; i < count; ++i) push(i);
  while (!candidates.empty()) {
    const Candidate top = candidates.top();
    candidates.pop();
    // The pair may have changed since; it still counts if it merges into the same token, whatever
    // its parts (the reference's own test).
    const Merge* merge = find_merge(top.position);
    if (merge == nullptr || merge->id != top.id) continue;
    Symbol& left = symbols[top.position];
    Symbol& right = symbols[left.next];
    left.id = top.id;
    left.next = right.next;
    right.merged_away = true;
    if (left.next != kNone) symbols[left.next].previous = top.position;
    push(left.previous);
    push(top.position);
  }
  for (int32_t i = 0; i != kNone && i < count; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace segue::model
