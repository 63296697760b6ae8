// Every input that the fuzzers begin from or ever stumbled over.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "fuzz/targets.h"
#include "weights/files.h"

namespace segue::fuzz {
namespace {

// Number of files of a corpus, after running the target on each.
int RunAll(const std::string& name, void (*target)(Span<const uint8_t>)) {
  int count = 0;
  const std::string directory = std::string(SEGUE_SOURCE_DIR) + "/fuzz/corpus/" + name;
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    SCOPED_TRACE(file.path().string());
    const std::string input = segue::testing::ReadFile(file.path().string());
    target({reinterpret_cast<const uint8_t*>(input.data()), input.size()});
    ++count;
  }
  return count;
}

// The targets end the process on a broken invariant, so coming back is the test; the counts guard
// against a corpus that went missing.
TEST(FuzzCorpus, Safetensors) { EXPECT_GE(RunAll("safetensors", &Safetensors), 20); }
TEST(FuzzCorpus, Json) { EXPECT_GE(RunAll("json", &Json), 20); }
TEST(FuzzCorpus, Tokenizer) { EXPECT_GE(RunAll("tokenizer", &Tokenizer), 20); }
TEST(FuzzCorpus, TokenizerJson) { EXPECT_GE(RunAll("tokenizer_json", &TokenizerJson), 8); }

}  // namespace
}  // namespace segue::fuzz
