// `segue generate` with the fake engine: files, streams, interruptions.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/fake_cli.h"
#include "segue/image.h"

namespace segue {
namespace {

using Names = std::vector<std::string>;

Names Generate(const Names& more, const std::string& model = "fake") {
  Names all = {"generate", "--model", model};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

DecodedPng MustDecode(const std::string& path) {
  const std::string text = ReadText(path);
  Result<DecodedPng> decoded = DecodePng({text.begin(), text.end()});
  EXPECT_TRUE(decoded.ok()) << path << ": " << decoded.error().Message();
  return decoded.ok() ? *std::move(decoded) : DecodedPng{};
}

std::string TextOf(const DecodedPng& png, const std::string& keyword) {
  for (const auto& [key, value] : png.text) {
    if (key == keyword) return value;
  }
  return "(absent)";
}

TEST(Generate, WritesOnePictureAndSaysWhere) {
  const ScratchDirectory directory;
  const Outcome outcome =
      RunFake(Generate({"--prompt", "caf\u00e9 \U0001F600", "--seed", "7", "--output", "a.png"}),
              directory);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "a.png\n");
  EXPECT_NE(outcome.err.find("fake: 64x48, 4 steps, guidance 4, seed 7, negative prompt \" \" (the "
                             "default, as none was given)\n"),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("step 4/4  0.05 s/step  0.0 s left\n"), std::string::npos);
  EXPECT_EQ(outcome.err.find('\r'), std::string::npos);
  EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos);
  ASSERT_EQ(directory.Names(), Names{"a.png"});
  const DecodedPng png = MustDecode(directory.File("a.png"));
  EXPECT_EQ(png.image.width, 64);
  EXPECT_EQ(png.image.height, 48);
  EXPECT_EQ(TextOf(png, "prompt"), "caf\u00e9 \U0001F600");
  EXPECT_EQ(TextOf(png, "negative_prompt"), " ");
  EXPECT_EQ(TextOf(png, "model"), "fake");
  EXPECT_EQ(TextOf(png, "size"), "64x48");
  EXPECT_EQ(TextOf(png, "steps"), "4");
  EXPECT_EQ(TextOf(png, "guidance"), "4.0");
  EXPECT_EQ(TextOf(png, "seed"), "7");
  EXPECT_EQ(TextOf(png, "rounding"), "(absent)");
  EXPECT_EQ(TextOf(png, "Software").substr(0, 8), "Segue 0.");
  struct stat info = {};
  stat(directory.File("a.png").c_str(), &info);
  const mode_t mask = umask(0);
  umask(mask);
  EXPECT_EQ(info.st_mode & 0777U, 0666U & ~mask);
}

// B125: what is asked for comes before the model's defaults.
TEST(Generate, RequestedSettingsAreTheOnesUsed) {
  const ScratchDirectory directory;
  const Outcome outcome =
      RunFake(Generate({"--prompt", "", "--size", "96x32", "--steps", "2", "--guidance",
                        "1.0000005", "--seed", "0", "--output", "a.png", "--bf16", "--reference"}),
              directory);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const DecodedPng png = MustDecode(directory.File("a.png"));
  EXPECT_EQ(png.image.width, 96);
  EXPECT_EQ(png.image.height, 32);
  EXPECT_EQ(TextOf(png, "prompt"), "");
  EXPECT_EQ(TextOf(png, "negative_prompt"), "(absent)");  // B118: as good as guidance 1
  EXPECT_EQ(TextOf(png, "steps"), "2");
  EXPECT_EQ(TextOf(png, "rounding"), "bf16");
  EXPECT_EQ(TextOf(png, "kernels"), "reference");
}

TEST(Generate, TheSameRequestGivesTheSameFile) {
  const ScratchDirectory directory;
  for (const char* name : {"a.png", "b.png"}) {
    ASSERT_EQ(
        RunFake(Generate({"--prompt", "x", "--seed", "3", "--output", name}), directory).status, 0);
  }
  EXPECT_EQ(ReadText(directory.File("a.png")), ReadText(directory.File("b.png")));
}

TEST(Generate, PromptsMayLookLikeAnything) {
  const Names prompts = {"--steps",     "-x",    "--",         "-",          "[a,b]", "{}", "a=b",
                         "--prompt=no", "%s%",   "<lora:x:1>", "<|im_end|>", "'q'",   "\"", "a\nb",
                         "@f",          "$HOME", "1,2",        "true",       "\\"};
  for (const std::string& prompt : prompts) {
    for (const bool joined : {false, true}) {
      const ScratchDirectory directory;
      Names arguments = Generate({"--seed", "1", "--output", "a.png"});
      if (joined) {
        arguments.push_back("--prompt=" + prompt);
      } else {
        arguments.insert(arguments.end(), {"--prompt", prompt});
      }
      const Outcome outcome = RunFake(arguments, directory);
      ASSERT_EQ(outcome.status, 0) << prompt << outcome.err;
      const DecodedPng png = MustDecode(directory.File("a.png"));
      EXPECT_EQ(TextOf(png, "prompt"), prompt);
      EXPECT_EQ(TextOf(png, "steps"), "4");  // B114: text never changes settings
    }
  }
}

TEST(Generate, AnEmptyPromptIsAPrompt) {
  for (const Names& prompt : {Names{"--prompt", ""}, Names{"--prompt="}}) {
    const ScratchDirectory directory;
    Names arguments = Generate(prompt);
    arguments.insert(arguments.end(), {"--seed", "1", "--output", "a.png"});
    EXPECT_EQ(RunFake(arguments, directory).status, 0);
    EXPECT_EQ(TextOf(MustDecode(directory.File("a.png")), "prompt"), "");
  }
}

TEST(Generate, ReadsPromptsFromFilesAndStdin) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a cat\n", "a cat"},
      {"a cat\r\n", "a cat"},
      {"a cat", "a cat"},
      {"two\nlines\n\n", "two\nlines\n"},
      {"\xef\xbb\xbfmark\n", "mark"},
      {"\n", ""}};
  for (const auto& [content, prompt] : cases) {
    const ScratchDirectory directory;
    WriteText(directory.File("p.txt"), content);
    EXPECT_EQ(RunFake(Generate({"--prompt-file", "p.txt", "--output", "a.png"}), directory).status,
              0);
    EXPECT_EQ(TextOf(MustDecode(directory.File("a.png")), "prompt"), prompt);
    Child child = Fake(Generate({"--prompt-file", "-", "--output", "b.png"}), directory);
    child.stdin_text = content;
    EXPECT_EQ(RunChild(child).status, 0);
    EXPECT_EQ(TextOf(MustDecode(directory.File("b.png")), "prompt"), prompt);
  }
}

TEST(Generate, RefusesPromptFilesThatAreNoText) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {std::string("\xff\xfe"
                   "a\0",
                   4),
       "--prompt-file: got byte 0xff at offset 0"},
      {std::string("a\0b", 3), "--prompt-file: got a NUL byte at offset 1"},
      {std::string((1 << 20) + 1, 'a'), "got more than 1048576 bytes"}};
  for (const auto& [content, expected] : cases) {
    const ScratchDirectory directory;
    WriteText(directory.File("p.txt"), content);
    const Outcome outcome = RunFake(Generate({"--prompt-file", "p.txt"}), directory);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.err.find(expected), std::string::npos) << outcome.err;
    EXPECT_EQ(directory.Names(), Names{"p.txt"});
  }
}

// B138: n pictures, each with its own seed.
TEST(Generate, SeveralPicturesCountUpTheSeed) {
  const ScratchDirectory directory;
  const auto run = [&](const std::string& pattern) {
    return RunFake(Generate({"--prompt", "x", "--seed", "18446744073709551613", "--n", "3",
                             "--output", pattern}),
                   directory);
  };
  EXPECT_EQ(run("a.png").out, "a-1.png\na-2.png\na-3.png\n");
  EXPECT_EQ(run("b{index}.png").out, "b1.png\nb2.png\nb3.png\n");
  EXPECT_EQ(run("{seed}.png").out,
            "18446744073709551613.png\n18446744073709551614.png\n18446744073709551615.png\n");
  EXPECT_EQ(directory.Names().size(), 9U);
  EXPECT_EQ(TextOf(MustDecode(directory.File("a-3.png")), "seed"), "18446744073709551615");
  EXPECT_NE(MustDecode(directory.File("a-1.png")).image.rgb,
            MustDecode(directory.File("a-2.png")).image.rgb);
}

// B074: a seed that nobody gave is chosen once and said.
TEST(Generate, ARandomSeedIsSaidAndReproduces) {
  const ScratchDirectory directory;
  const Outcome first = RunFake(Generate({"--prompt", "x"}), directory);
  ASSERT_EQ(first.status, 0);
  ASSERT_EQ(directory.Names().size(), 1U);
  const std::string path = directory.File(directory.Names()[0]);
  const std::string seed = TextOf(MustDecode(path), "seed");
  EXPECT_EQ(first.out, "segue-" + seed + ".png\n");
  EXPECT_NE(first.err.find("seed " + seed + " (random)"), std::string::npos);
  ASSERT_EQ(
      RunFake(Generate({"--prompt", "x", "--seed", seed, "--output", "b.png"}), directory).status,
      0);
  EXPECT_EQ(ReadText(path), ReadText(directory.File("b.png")));
}

TEST(Generate, NeverOverwritesUnlessTold) {
  const ScratchDirectory directory;
  WriteText(directory.File("a.png"), "mine");
  const Names arguments = Generate({"--prompt", "x", "--output", "a.png"});
  const Outcome refused = RunFake(arguments, directory);
  EXPECT_EQ(refused.status, 7);
  EXPECT_EQ(refused.out, "");
  EXPECT_NE(refused.err.find("a.png: got a name that exists, wanted a free name such as a-1.png, "
                             "or --overwrite"),
            std::string::npos)
      << refused.err;
  EXPECT_EQ(ReadText(directory.File("a.png")), "mine");
  Names told = arguments;
  told.emplace_back("--overwrite");
  EXPECT_EQ(RunFake(told, directory).status, 0);
  EXPECT_EQ(MustDecode(directory.File("a.png")).image.width, 64);
  // One taken name among several stops the run before any picture.
  WriteText(directory.File("b-3.png"), "mine");
  EXPECT_EQ(RunFake(Generate({"--prompt", "x", "--n", "3", "--output", "b.png"}), directory).status,
            7);
  EXPECT_EQ(directory.Names(), (Names{"a.png", "b-3.png"}));
  // A dangling link and a directory are names too.
  std::filesystem::create_symlink("nowhere", directory.File("l.png"));
  EXPECT_EQ(RunFake(Generate({"--prompt", "x", "--output", "l.png"}), directory).status, 7);
  std::filesystem::create_directory(directory.File("d.png"));
  const Outcome into =
      RunFake(Generate({"--prompt", "x", "--output", "d.png", "--overwrite"}), directory);
  EXPECT_EQ(into.status, 7);
  EXPECT_NE(into.err.find("got a directory, wanted a regular file"), std::string::npos);
}

TEST(Generate, TheDefaultNameEvadesWhatIsThere) {
  const ScratchDirectory directory;
  const Names arguments = Generate({"--prompt", "x", "--seed", "5"});
  EXPECT_EQ(RunFake(arguments, directory).out, "segue-5.png\n");
  EXPECT_EQ(RunFake(arguments, directory).out, "segue-5-1.png\n");
  EXPECT_EQ(RunFake(arguments, directory).out, "segue-5-2.png\n");
}

TEST(Generate, UnwritableDirectoriesAreFoundBeforeComputing) {
  const ScratchDirectory directory;
  WriteText(directory.File("plain"), "");
  const Outcome file = RunFake(Generate({"--prompt", "x", "--output", "plain/a.png"}), directory);
  EXPECT_EQ(file.status, 7);
  EXPECT_NE(file.err.find("write into: plain: got Not a directory"), std::string::npos) << file.err;
  // Nobody makes files in /proc, root included.
  const Outcome proc =
      RunFake(Generate({"--prompt", "x", "--output", "/proc/a.png"}, "fake-slow"), directory);
  EXPECT_EQ(proc.status, proc.err.find("No such file") != std::string::npos ? 4 : 7);
  EXPECT_NE(proc.err.find("write into: /proc"), std::string::npos) << proc.err;
  EXPECT_EQ(proc.err.find("step"), std::string::npos);
}

TEST(Generate, ADiskThatFillsUpLeavesNothing) {
  const ScratchDirectory directory;
  Child child = Fake(Generate({"--prompt", "x", "--seed", "1", "--output", "a.png"}), directory);
  child.max_file_bytes = 100;
  const Outcome outcome = RunChild(child);
  EXPECT_EQ(outcome.status, 7);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find("write: a.png: got File too large"), std::string::npos) << outcome.err;
  EXPECT_EQ(directory.Names(), Names{});
}

// B060: no black picture, no file, a status that tells.
TEST(Generate, ANonFiniteStepIsAnErrorWithoutAFile) {
  const ScratchDirectory directory;
  const Outcome outcome =
      RunFake(Generate({"--prompt", "x", "--output", "a.png"}, "fake-step"), directory);
  EXPECT_EQ(outcome.status, 8);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find("denoise: step 3: got nan in the latents"), std::string::npos);
  EXPECT_EQ(directory.Names(), Names{});
}

TEST(Generate, AQualityTierIsAskedForAndReported) {
  const ScratchDirectory directory;
  const auto run = [&](Names more) {
    more.insert(more.begin(), {"--prompt", "x", "--seed", "1", "--overwrite", "--output", "a.png"});
    return RunFake(Generate(more), directory);
  };
  const Outcome high = run({"--quality", "high", "--json"});
  ASSERT_EQ(high.status, 0) << high.err;
  const nlohmann::json picture = nlohmann::json::parse(high.out)["pictures"][0];
  EXPECT_EQ(picture["quality"]["tier"], "high");
  EXPECT_EQ(picture["quality"]["gates"], nlohmann::json::array({"gelu-epilogue"}));
  EXPECT_EQ(picture["quality"]["refused"][0]["gate"], "packed-text-qkv");
  EXPECT_EQ(picture["attention"], "fake");
  EXPECT_TRUE(picture["graph"].contains("replayed"));
  EXPECT_NE(high.err.find(", quality high"), std::string::npos) << high.err;
  EXPECT_NE(high.err.find("gate packed-text-qkv is not mounted: not in\\na fake model\n"),
            std::string::npos)
      << high.err;
  EXPECT_EQ(TextOf(MustDecode(directory.File("a.png")), "quality"), "high (gelu-epilogue)");
  ASSERT_EQ(run({"--quality", "high", "--gates", "float32-norms,float32-heads"}).status, 0);
  EXPECT_EQ(TextOf(MustDecode(directory.File("a.png")), "quality"),
            "high (float32-norms, float32-heads)");
  ASSERT_EQ(run({"--quality", "lossless"}).status, 0);
  EXPECT_EQ(TextOf(MustDecode(directory.File("a.png")), "quality"), "(absent)");
}

TEST(Generate, AnUnknownTierOrGateIsAnError) {
  const ScratchDirectory directory;
  const auto expect = [&](const Names& more, const std::string& message) {
    Names all = {"--prompt", "x"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = RunFake(Generate(all), directory);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  };
  expect({"--quality", "ultra"}, "--quality: got 'ultra', wanted one of lossless, high");
  expect({"--quality", "high", "--gates", "teacache"}, "--gates: got 'teacache', wanted gates of:");
  expect({"--gates", "gelu-epilogue"}, "--gates: got quality lossless, which mounts none");
  EXPECT_EQ(directory.Names(), Names{});
}

TEST(Generate, JsonSaysWhatRan) {
  const ScratchDirectory directory;
  const Outcome outcome = RunFake(
      Generate({"--prompt", "long", "--seed", "5", "--n", "2", "--output", "a.png", "--json"}),
      directory);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["model"], "fake");
  EXPECT_EQ(json["prompt"], "long");
  EXPECT_GE(json["threads"], 1);
  EXPECT_EQ(json["tensor_parallel"], 1);
  EXPECT_EQ(json["cfg_parallel"], false);
  ASSERT_EQ(json["pictures"].size(), 2U);
  const nlohmann::json& picture = json["pictures"][1];
  EXPECT_EQ(picture["path"], "a-2.png");
  EXPECT_EQ(picture["seed"], 6);
  EXPECT_EQ(picture["width"], 64);
  EXPECT_EQ(picture["guidance"], 4.0);
  EXPECT_EQ(picture["negative_prompt"], " ");
  EXPECT_EQ(picture["negative_prompt_given"], false);
  EXPECT_TRUE(picture["seconds"].contains("denoise"));
  EXPECT_EQ(picture["warnings"][0], "the prompt was cut to 3 tokens");
  EXPECT_EQ(picture["kernels"][0]["kernel"], "fake");
  EXPECT_EQ(picture["kernels"][0]["passed_over"][0], "avx2: not here");
  // On stderr a warning is said once, not once a picture.
  const size_t at = outcome.err.find("warning: the prompt was cut");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(outcome.err.find("warning: the prompt was cut", at + 1), std::string::npos);
}

TEST(Generate, JsonSaysWhatMemoryAGpuGave) {
  const ScratchDirectory directory;
  const Outcome on_cpu = RunFake(Generate({"--prompt", "x", "--json"}), directory);
  EXPECT_FALSE(nlohmann::json::parse(on_cpu.out).contains("memory"));
  const Outcome on_gpu = RunFake(
      Generate({"--prompt", "x", "--json", "--device", "cuda", "--drop-modulation"}), directory);
  ASSERT_EQ(on_gpu.status, 0) << on_gpu.err;
  EXPECT_EQ(
      nlohmann::json::parse(on_gpu.out)["memory"],
      nlohmann::json::parse(R"({"planned": 100, "allocated": 80, "peak": 99, "device": 120})"));
}

TEST(Generate, QuietLeavesWarningsAndPaths) {
  const ScratchDirectory directory;
  const Outcome outcome =
      RunFake(Generate({"--prompt", "long", "--seed", "5", "--quiet"}), directory);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "segue-5.png\n");
  EXPECT_EQ(outcome.err, "segue generate: warning: the prompt was cut to 3 tokens\n");
}

TEST(Generate, ATerminalShowsABarWithinItsWidth) {
  for (const int columns : {200, 80, 50, 30, 12}) {
    const ScratchDirectory directory;
    Child child =
        Fake(Generate({"--prompt", "x", "--seed", "1", "--steps", "6"}, "fake-slow"), directory);
    child.terminal_columns = columns;
    const Outcome outcome = RunChild(child);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const size_t begin = outcome.err.find('\r', outcome.err.find('\n') + 1);
    ASSERT_NE(begin, std::string::npos);
    if (columns >= 80) {
      EXPECT_NE(outcome.err.find("[####"), std::string::npos) << outcome.err;
    }
    EXPECT_NE(outcome.err.find("step 6/6"), std::string::npos);
    EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos);
    // Every redraw fits; what follows the bar is the report.
    size_t from = begin + 1;
    for (size_t to = 0; (to = outcome.err.find('\r', from)) != std::string::npos; from = to + 1) {
      const std::string line = outcome.err.substr(from, to - from);
      if (line.starts_with("load ")) break;
      EXPECT_LT(static_cast<int>(line.size()), columns) << line;
    }
  }
}

TEST(Generate, CtrlCStopsWithinAStepAndLeavesNothing) {
  for (const auto& [signal, status] : {std::pair{SIGINT, 130}, {SIGTERM, 143}, {SIGHUP, 129}}) {
    const ScratchDirectory directory;
    Child child =
        Fake(Generate({"--prompt", "x", "--output", "a.png", "--steps", "1000"}, "fake-slow"),
             directory);
    child.signal = signal;
    child.signal_when = "step ";
    child.deadline = std::chrono::seconds(20);
    const Outcome outcome = RunChild(child);
    EXPECT_EQ(outcome.status, status);
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find("interrupted by "), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("; 0 of 1 pictures were written\n"), std::string::npos);
    EXPECT_EQ(directory.Names(), Names{});
  }
}

TEST(Generate, ASecondCtrlCEndsAStepThatDoesNot) {
  const ScratchDirectory directory;
  Child child = Fake(Generate({"--prompt", "x", "--output", "a.png"}, "fake-stuck"), directory);
  child.signal = SIGINT;
  child.signal_again = true;
  child.signal_when = "fake-stuck: ";
  const Outcome outcome = RunChild(child);
  EXPECT_EQ(outcome.status, 130);
  EXPECT_EQ(directory.Names(), Names{});
}

TEST(Generate, CtrlCKeepsThePicturesThatAreDone) {
  const ScratchDirectory directory;
  Child child = Fake(
      Generate({"--prompt", "x", "--output", "a.png", "--steps", "30", "--n", "100"}, "fake-slow"),
      directory);
  child.signal = SIGINT;
  child.signal_when = "picture 2/100";
  const Outcome outcome = RunChild(child);
  EXPECT_EQ(outcome.status, 130);
  EXPECT_EQ(outcome.out, "a-1.png\n");
  EXPECT_EQ(directory.Names(), Names{"a-1.png"});
  EXPECT_EQ(MustDecode(directory.File("a-1.png")).image.width, 64);
}

TEST(Generate, CtrlCEndsTheWaitForAPrompt) {
  const ScratchDirectory directory;
  Child child = Fake(Generate({"--prompt-file", "-"}), directory);
  child.signal = SIGTERM;
  const Outcome outcome = RunChild(child);
  EXPECT_EQ(outcome.status, 143);
  EXPECT_EQ(directory.Names(), Names{});
}

// Shells start background jobs with SIGINT ignored, and it stays so.
TEST(Generate, AnIgnoredInterruptStaysIgnored) {
  const ScratchDirectory directory;
  Child child = Fake(Generate({"--prompt", "x", "--output", "a.png", "--steps", "25"}, "fake-slow"),
                     directory);
  child.ignore_sigint = true;
  child.signal = SIGINT;
  child.signal_when = "step ";
  const Outcome outcome = RunChild(child);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(directory.Names(), Names{"a.png"});
}

TEST(Generate, DumpsStagesAndStartsFromThem) {
  const ScratchDirectory directory;
  const Outcome dump = RunFake(
      Generate({"--prompt", "x", "--seed", "3", "--n", "2", "--output", "a.png", "--dump", "d"}),
      directory);
  ASSERT_EQ(dump.status, 0) << dump.err;
  EXPECT_TRUE(std::filesystem::exists(directory.File("d/seed-3.safetensors")));
  EXPECT_TRUE(std::filesystem::exists(directory.File("d/seed-4.safetensors")));
  // Nor are stages overwritten.
  EXPECT_EQ(RunFake(Generate({"--prompt", "x", "--seed", "3", "--output", "b.png", "--dump", "d"}),
                    directory)
                .status,
            7);
  const Names from = {"--prompt", "x", "--output", "c.png", "--latents", "d/seed-3.safetensors"};
  EXPECT_EQ(RunFake(Generate(from), directory).status, 0);
  EXPECT_EQ(TextOf(MustDecode(directory.File("c.png")), "latents"), "seed-3.safetensors");
  EXPECT_EQ(TextOf(MustDecode(directory.File("c.png")), "seed"), "(absent)");
  const auto refused = [&](const Names& more) {
    Names all = from;
    all[3] = "e.png";
    all.insert(all.end(), more.begin(), more.end());
    return RunFake(Generate(all), directory);
  };
  EXPECT_NE(refused({"--seed", "3"}).err.find("--latents: got --seed too"), std::string::npos);
  EXPECT_NE(refused({"--n", "2"}).err.find("--latents: got --n 2 too"), std::string::npos);
  Names missing = from;
  missing[5] = "none.safetensors";
  EXPECT_EQ(RunFake(Generate(missing), directory).status, 4);
}

}  // namespace
}  // namespace segue
