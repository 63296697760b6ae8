// The command line before anything is computed: help, versions, options and their values.
#include <gtest/gtest.h>

#include "cli/fake_cli.h"
#include "cli/usage.h"

namespace segue {
namespace {

using Arguments = std::vector<std::string>;

// An error: this status, one line on stderr that holds `expected`, nothing on stdout, no file.
void ExpectError(const Arguments& arguments, int status, const std::string& expected) {
  const ScratchDirectory directory;
  const Outcome outcome = RunFake(arguments, directory);
  const std::string shown = testing::PrintToString(arguments);
  EXPECT_EQ(outcome.status, status) << shown << outcome.err;
  EXPECT_EQ(outcome.out, "") << shown;
  EXPECT_NE(outcome.err.find(expected), std::string::npos) << shown << "\n" << outcome.err;
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
  EXPECT_EQ(directory.Names(), Arguments{}) << shown;
}

Arguments Generate(const Arguments& more) {
  Arguments all = {"generate", "--model", "fake", "--prompt", "x", "--seed", "1"};
  for (const std::string& text : more) {
    // A value given again replaces the one above.
    const auto at = std::find(all.begin(), all.end(), text);
    if (text.starts_with("--") && at != all.end()) all.erase(at, at + 2);
    all.push_back(text);
  }
  return all;
}

TEST(Usage, HelpIsForNewcomers) {
  const ScratchDirectory directory;
  const Outcome top = RunFake({"--help"}, directory);
  EXPECT_EQ(top.status, 0);
  EXPECT_EQ(top.err, "");
  for (const char* word : {"generate", "inspect", "verify", "compare", "plan", "--version",
                           "segue generate --model models/emoji --prompt"}) {
    EXPECT_NE(top.out.find(word), std::string::npos) << word;
  }
  const Outcome sub = RunFake({"generate", "--help"}, directory);
  EXPECT_EQ(sub.status, 0);
  for (const char* option :
       {"--model", "--prompt", "--prompt-file", "--negative-prompt", "--size", "--steps",
        "--guidance", "--seed", "--n", "--output", "--overwrite", "--threads", "--json", "--quiet",
        "--dump", "--latents", "--bf16", "--reference", "Examples:"}) {
    EXPECT_NE(sub.out.find(option), std::string::npos) << option;
  }
  for (const Outcome& outcome : {top, sub}) {
    size_t begin = 0;
    for (size_t end = 0; (end = outcome.out.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      EXPECT_LE(end - begin, 100U) << outcome.out.substr(begin, end - begin);
    }
  }
}

// B150: a report of a fault begins with the build it happened in.
TEST(Usage, VersionNamesTheBuild) {
  const ScratchDirectory directory;
  const Outcome outcome = RunFake({"--version"}, directory);
  EXPECT_EQ(outcome.status, 0);
  for (const char* word : {"segue 0.", "commit: ", "compiler: ", "CUDA: ", "CPU: "}) {
    EXPECT_NE(outcome.out.find(word), std::string::npos) << word;
  }
}

TEST(Usage, UnknownWordsAreErrorsWithTheNearestKnown) {
  ExpectError({}, 2, "segue: ");
  ExpectError({"genrate"}, 2, "unknown command 'genrate', did you mean 'generate'?");
  ExpectError(Generate({"--stpes", "3"}), 2, "unknown option '--stpes', did you mean '--steps'?");
  ExpectError(Generate({"--frobnicate"}), 2, "unknown option '--frobnicate'");
  ExpectError(Generate({"stray"}), 2, "unknown argument 'stray'");
  ExpectError({"generate", "--prompt", "x"}, 2, "--model is required");
  ExpectError({"inspect"}, 2, "MODEL is required");
  ExpectError({"compare", "a"}, 2, "B is required");
  // Abbreviations are not guessed at, values are not dropped, options are given once.
  ExpectError(Generate({"--step", "3"}), 2, "did you mean '--steps'?");
  ExpectError(Generate({"--steps"}), 2, "--steps");
  ExpectError(Generate({"--json=banana"}), 2, "--json");
  ExpectError({"generate", "--model", "fake", "--prompt", "x", "--seed", "1", "--seed", "2"}, 2,
              "--seed");
}

TEST(Usage, NearestNeedsToBeNear) {
  EXPECT_EQ(cli::Nearest("--sed", {"--seed", "--size"}), "--seed");
  EXPECT_EQ(cli::Nearest("--quite", {"--quiet", "--output"}), "--quiet");
  EXPECT_EQ(cli::Nearest("--zebra", {"--seed", "--size"}), "");
  EXPECT_EQ(cli::Nearest("", {"--seed"}), "");
}

// B123, B126: every size that is not one says what would be.
TEST(Usage, SizesThatAreNotValidNameTheNearestThatIs) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"1920x1080", "the nearest being 1920x1072 or 1920x1088"},
      {"585x610", "the nearest being 592x608"},
      {"1x1", "the nearest being 16x16"},
      {"15x16", "the nearest being 16x16"},
      {"17x17", "the nearest being 16x16"},
      {"8x8", "the nearest being 16x16"},
      {"24x24", "the nearest being 16x16 or 16x32 or 32x16 or 32x32"},
      {"0x512", "the nearest being 16x512"},
      {"-512x512", "the nearest being 16x512"},
      {"512x-9223372036854775809", "the nearest being 512x16"},
      {"512", "wanted WIDTHxHEIGHT in pixels, for example 512x512"},
      {"512x", "wanted WIDTHxHEIGHT"},
      {"x512", "wanted WIDTHxHEIGHT"},
      {"", "got '', wanted WIDTHxHEIGHT"},
      {"512x512x3", "wanted WIDTHxHEIGHT"},
      {"512 x 512", "wanted WIDTHxHEIGHT"},
      {"5.12e2x512", "wanted WIDTHxHEIGHT"},
      {"+512x512", "wanted WIDTHxHEIGHT"},
      {"0x200x512", "wanted WIDTHxHEIGHT"},
      {"512*512", "wanted WIDTHxHEIGHT"},
      {"512X512", "wanted a lower-case x: 512x512"},
      {"2147483648x16", "sides of at most 2147483632"},
      {"99999999999999999999x16", "sides of at most 2147483632"},
      {"100000x10000", "wanted at most 2048x2048"},
  };
  for (const auto& [size, expected] : cases) {
    ExpectError(Generate({"--size", size}), 2, expected);
    if (size != "100000x10000") ExpectError({"inspect", "fake", "--size", size}, 2, expected);
  }
}

TEST(Usage, NumbersAreReadStrictly) {
  for (const char* steps :
       {"0", "-1", "1001", "1.5", "", " 4", "4 ", "0x10", "four", "1e1", "99999999999", "+4"}) {
    ExpectError(Generate({"--steps", steps}), 2, "wanted a whole number from 1 to 1000");
  }
  // B138's values of n.
  for (const char* count : {"0", "-1", "1.5", "\"2\"", "10001"}) {
    ExpectError(Generate({"--n", count}), 2, "--n: got ");
  }
  for (const char* seed : {"-1", "18446744073709551616", "1.0", "", "0x1"}) {
    ExpectError(Generate({"--seed", seed}), 2,
                "wanted a whole number from 0 to 18446744073709551615");
  }
  ExpectError(Generate({"--seed", "18446744073709551615", "--n", "2"}), 2,
              "at most 18446744073709551614 with --n 2");
  for (const char* guidance : {"nan", "inf", "-inf", "1e999", "", "4,5", "strong"}) {
    ExpectError(Generate({"--guidance", guidance}), 2, "wanted a finite decimal number");
  }
  for (const char* threads : {"0", "-1", "1025", "two"}) {
    ExpectError(Generate({"--threads", threads}), 2, "--threads: got ");
  }
}

TEST(Usage, PromptsAreUtf8AndGivenOnce) {
  ExpectError({"generate", "--model", "fake"}, 2, "--prompt, --prompt-file: got neither");
  ExpectError(Generate({"--prompt-file", "p.txt"}), 2, "got both, wanted one of them");
  ExpectError(Generate({"--prompt", "a\xff"}), 2,
              "--prompt: got byte 0xff at offset 1, which is not UTF-8, wanted UTF-8 text");
  ExpectError(Generate({"--negative-prompt", "\xed\xa0\x80"}), 2, "--negative-prompt: got byte");
  ExpectError({"generate", "--model", "fake", "--prompt-file", "missing.txt"}, 4,
              "read: missing.txt: got No such file or directory");
}

// B117: what could not take effect is refused, not dropped.
TEST(Usage, OptionsWithoutEffectAreErrors) {
  for (const char* guidance : {"1", "0", "-3", "1.0000000000000002", "1.0000005"}) {
    ExpectError(Generate({"--guidance", guidance, "--negative-prompt", "ugly"}), 2,
                "which leaves it without effect, wanted --guidance above 1");
  }
  ExpectError(Generate({"--no-graphs"}), 2, "--no-graphs: got the CPU, wanted --device cuda");
  ExpectError(Generate({"--tp", "9"}), 2, "--tp");
  ExpectError(Generate({"--tp", "0"}), 2, "--tp");
  ExpectError(Generate({"--tp", "2", "--cfg-parallel"}), 2, "--cfg-parallel: got --tp too");
  ExpectError(Generate({"--cfg-parallel", "--guidance", "1"}), 2,
              "--cfg-parallel: got guidance 1, which has no second branch");
  ExpectError(Generate({"--drop-modulation"}), 2,
              "--drop-modulation: got the CPU, wanted --device cuda");
  ExpectError(Generate({"--cache", "x"}), 2, "--cache: got the CPU, wanted --device cuda");
  ExpectError(Generate({"--cache", "x", "--device", "cpu"}), 2, "wanted --device cuda");
}

TEST(Usage, OutputNamesArePngFiles) {
  ExpectError(Generate({"--output", "a.jpg"}), 2, "ends in .png, such as a.jpg.png");
  ExpectError(Generate({"--output", "a"}), 2, "such as a.png");
  ExpectError(Generate({"--output", ""}), 2, "such as picture.png");
  ExpectError(Generate({"--output", ".png"}), 2, "such as picture.png");
  ExpectError(Generate({"--output", "{sede}.png"}), 2, "no braces but those of {seed} and {index}");
  ExpectError(Generate({"--output", "none/a.png"}), 4, "write into: none: got No such file");
}

// Each class of error has its status, and a message stays on one line whatever is in it.
TEST(Usage, EveryErrorClassHasItsExitStatus) {
  const std::vector<int> statuses = {2, 4, 5, 6, 7, 3, 8, 130, 9};  // in ErrorCode's order
  for (size_t code = 0; code < statuses.size(); ++code) {
    const std::string model = "fake-" + std::to_string(code);
    ExpectError(Generate({"--model", model}), statuses[code], "load: fake\\nmodel: got ");
    ExpectError({"inspect", model}, statuses[code], "segue inspect: load: fake\\nmodel");
    ExpectError({"verify", model}, statuses[code], "segue verify: load: fake\\nmodel");
  }
}

TEST(Usage, StdoutThatCannotBeWrittenIsAnError) {
  const ScratchDirectory directory;
  Child child = Fake({"inspect", "fake"}, directory);
  child.stdout_file = "/dev/full";
  const Outcome outcome = RunChild(child);
  EXPECT_EQ(outcome.status, 7);
  EXPECT_NE(outcome.err.find("write to stdout: got No space left"), std::string::npos)
      << outcome.err;
}

TEST(Usage, InspectPrintsTablesAndJson) {
  const ScratchDirectory directory;
  const Outcome text =
      RunFake({"inspect", "fake", "--size", "64x64", "--size", "1024x512", "--tensors"}, directory);
  EXPECT_EQ(text.status, 0);
  for (const char* word : {"FakeVae", "2.0 KiB", "BF16 x 1 (1 not used)", "a.weight", "[3, 4]",
                           "64x64", "1024x512", "yes", "no"}) {
    EXPECT_NE(text.out.find(word), std::string::npos) << word << text.out;
  }
  const Outcome json = RunFake({"inspect", "fake", "--json"}, directory);
  EXPECT_EQ(json.status, 0);
  EXPECT_NE(json.out.find("\"parameters\": 12"), std::string::npos) << json.out;
  EXPECT_EQ(json.out.find("a.weight"), std::string::npos);
}

TEST(Usage, VerifySaysSoundOrNot) {
  const ScratchDirectory directory;
  const Outcome good = RunFake({"verify", "fake"}, directory);
  EXPECT_EQ(good.status, 0);
  EXPECT_EQ(good.out, "ok       headers\nsound\n");
  const Outcome bad = RunFake({"verify", "fake-bad"}, directory);
  EXPECT_EQ(bad.status, 1);
  EXPECT_NE(bad.out.find("problem  vae: tensor 'x': nan at index 7\nunsound: 1 problem\n"),
            std::string::npos);
}

}  // namespace
}  // namespace segue
