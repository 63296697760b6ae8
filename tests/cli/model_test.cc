// The real program with real models: what only they can show.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/process.h"
#include "segue/image.h"

namespace segue {
namespace {

using Arguments = std::vector<std::string>;

// The random model of the goldens; default size 80x48, 20 steps, guidance 4.
constexpr char kTiny[] = SEGUE_SOURCE_DIR "/tests/goldens/tiny/model";

// The trained model.
constexpr char kEmoji[] = SEGUE_SOURCE_DIR "/models/emoji";

Child Segue(Arguments arguments, const ScratchDirectory& directory) {
  Child child{.directory = directory.path()};
  child.command = std::move(arguments);
  child.command.insert(child.command.begin(), SEGUE_BINARY);
  return child;
}

Arguments Generate(const Arguments& more, const std::string& model = kTiny) {
  Arguments all = {"generate", "--model", model, "--steps", "2"};
  for (const std::string& text : more) {
    const auto at = std::find(all.begin(), all.end(), text);
    if (text.starts_with("--") && at != all.end()) all.erase(at, at + 2);
    all.push_back(text);
  }
  return all;
}

Outcome RunSegue(const Arguments& arguments, const ScratchDirectory& directory) {
  return RunChild(Segue(arguments, directory));
}

DecodedPng MustDecode(const std::string& path) {
  const std::string text = ReadText(path);
  Result<DecodedPng> decoded = DecodePng({text.begin(), text.end()});
  EXPECT_TRUE(decoded.ok()) << path << ": " << decoded.error().Message();
  return decoded.ok() ? *std::move(decoded) : DecodedPng{};
}

// The first picture of a --json run that must succeed.
nlohmann::json MustRunJson(Arguments arguments, const ScratchDirectory& directory) {
  arguments.emplace_back("--json");
  const Outcome outcome = RunSegue(arguments, directory);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  if (outcome.status != 0) return {};
  return nlohmann::json::parse(outcome.out)["pictures"][0];
}

// The model in the repository, as a newcomer would run it.
TEST(Model, EmojiTakesItsDefaultsAndSaysSo) {
  const ScratchDirectory directory;
  const Outcome outcome = RunSegue({"generate", "--model", kEmoji, "--prompt", "red apple",
                                    "--seed", "1", "--output", "apple.png"},
                                   directory);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find(": 128x128, 20 steps, guidance 4, seed 1, negative prompt \" \" (the "
                             "default, as none was given)\n"),
            std::string::npos)
      << outcome.err;
  const Image image = MustDecode(directory.File("apple.png")).image;
  ASSERT_EQ(image.width, 128);
  ASSERT_EQ(image.height, 128);
  // A red apple on white: the corners are white, the middle is red.
  const auto level = [&](int x, int y, int channel) {
    return int{image.rgb[static_cast<size_t>((y * 128 + x) * 3 + channel)]};
  };
  for (const auto& [x, y] : {std::pair{0, 0}, {127, 0}, {0, 127}, {127, 127}}) {
    for (int channel = 0; channel < 3; ++channel) EXPECT_GT(level(x, y, channel), 240);
  }
  EXPECT_GT(level(64, 72, 0), 180);
  EXPECT_LT(level(64, 72, 1), 110);
  EXPECT_LT(level(64, 72, 2), 110);
}

TEST(Model, EmojiIsSound) {
  const ScratchDirectory directory;
  const Outcome verified = RunSegue({"verify", kEmoji}, directory);
  EXPECT_EQ(verified.status, 0) << verified.out;
  const Outcome inspected = RunSegue({"inspect", kEmoji}, directory);
  EXPECT_EQ(inspected.status, 0);
  EXPECT_NE(inspected.out.find("128x128"), std::string::npos) << inspected.out;
}

TEST(Model, EmojiMakesEverySizeItWasTrainedAt) {
  for (const char* size : {"64x64", "96x96", "128x96"}) {
    const ScratchDirectory directory;
    const nlohmann::json picture = MustRunJson(
        Generate({"--prompt", "cat face", "--size", size, "--output", "a.png"}, kEmoji), directory);
    EXPECT_EQ(std::to_string(picture.value("width", 0)) + "x" +
                  std::to_string(picture.value("height", 0)),
              size);
  }
}

// B121: fresh processes agree, and so do different numbers of threads.
TEST(Model, TheSameRequestGivesTheSameBytes) {
  const ScratchDirectory directory;
  std::string first;
  for (const char* threads : {"1", "2", "3", "2"}) {
    ASSERT_EQ(RunSegue(Generate({"--prompt", "red apple", "--seed", "7", "--threads", threads,
                                 "--output", "a.png", "--overwrite"}),
                       directory)
                  .status,
              0);
    const std::string bytes = ReadText(directory.File("a.png"));
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << threads;
  }
  ASSERT_EQ(
      RunSegue(Generate({"--prompt", "red apple", "--seed", "8", "--output", "b.png"}), directory)
          .status,
      0);
  EXPECT_NE(MustDecode(directory.File("b.png")).image.rgb,
            MustDecode(directory.File("a.png")).image.rgb);
}

// B138: picture i of n is the picture of seed + i.
TEST(Model, PicturesOfARunAreThoseOfTheirSeeds) {
  const ScratchDirectory directory;
  ASSERT_EQ(RunSegue(Generate({"--prompt", "x", "--seed", "5", "--n", "2", "--output", "a.png"}),
                     directory)
                .status,
            0);
  ASSERT_EQ(
      RunSegue(Generate({"--prompt", "x", "--seed", "6", "--output", "b.png"}), directory).status,
      0);
  EXPECT_EQ(ReadText(directory.File("a-2.png")), ReadText(directory.File("b.png")));
}

// B123, B125, B127: a size that is accepted is the size of the file, extreme ones too.
TEST(Model, AcceptedSizesAreTheSizesOfTheFiles) {
  const std::vector<std::pair<std::string, std::pair<int, int>>> cases = {
      {"16x16", {16, 16}},     {"48x80", {48, 80}},     {"112x16", {112, 16}},
      {"16x2048", {16, 2048}}, {"2048x16", {2048, 16}}, {"", {80, 48}}};
  for (const auto& [size, expected] : cases) {
    const ScratchDirectory directory;
    Arguments arguments = Generate({"--prompt", "x", "--output", "a.png", "--steps", "1"});
    if (!size.empty()) arguments.insert(arguments.end(), {"--size", size});
    const Outcome outcome = RunSegue(arguments, directory);
    ASSERT_EQ(outcome.status, 0) << size << outcome.err;
    const Image image = MustDecode(directory.File("a.png")).image;
    EXPECT_EQ(std::pair(image.width, image.height), expected);
  }
}

// B126: sizes beyond every limit name the limit before anything is allocated.
TEST(Model, AbsurdSizesAreRefusedAtOnce) {
  for (const char* size : {"100000x10000", "8208x16", "16x8208", "8192x8192", "31632x31616"}) {
    const ScratchDirectory directory;
    const Outcome outcome = RunSegue(Generate({"--prompt", "x", "--size", size}), directory);
    EXPECT_EQ(outcome.status, 2) << size;
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find("wanted a"), std::string::npos) << outcome.err;
    EXPECT_EQ(directory.Names(), Arguments{});
  }
}

// B117, B118: what ran is what is said.
TEST(Model, GuidanceRunsTheBranchesItSays) {
  const ScratchDirectory directory;
  for (const char* guidance : {"1", "1.0000000000000002", "1.0000005", "0"}) {
    const nlohmann::json picture =
        MustRunJson(Generate({"--prompt", "x", "--guidance", guidance, "--steps", "1"}), directory);
    EXPECT_EQ(picture["guided"], false) << guidance;
    EXPECT_FALSE(picture.contains("negative_prompt"));
  }
  const nlohmann::json guided =
      MustRunJson(Generate({"--prompt", "x", "--guidance", "1.01", "--steps", "1"}), directory);
  EXPECT_EQ(guided["guided"], true);
  EXPECT_EQ(guided["negative_prompt"], " ");
  EXPECT_EQ(guided["negative_prompt_given"], false);
  EXPECT_GE(guided["negative_prompt_tokens"], 1);
  const nlohmann::json both = MustRunJson(
      Generate({"--prompt", "", "--negative-prompt", "", "--steps", "1"}), directory);  // B109
  EXPECT_EQ(both["negative_prompt"], "");
  EXPECT_GE(both["prompt_tokens"], 1);
}

TEST(Model, OverLongPromptsAreCutWithAWarning) {
  const ScratchDirectory directory;
  std::string words;
  for (int i = 0; i < 1500; ++i) words += "apple ";
  const nlohmann::json picture =
      MustRunJson(Generate({"--prompt", words, "--steps", "1", "--size", "16x16"}), directory);
  ASSERT_EQ(picture["warnings"].size(), 1U);
  EXPECT_NE(picture["warnings"][0].get<std::string>().find("too long"), std::string::npos);
}

TEST(Model, KernelsAreNamed) {
  const ScratchDirectory directory;
  const Arguments settings = {"--prompt", "x", "--steps", "1", "--size", "16x16"};
  EXPECT_FALSE(MustRunJson(Generate(settings), directory)["kernels"].empty());
  Arguments reference = Generate(settings);
  reference.emplace_back("--reference");
  const nlohmann::json document = MustRunJson(reference, directory);
  for (const nlohmann::json& use : document.at("kernels")) {
    EXPECT_TRUE(use["kernel"] == "ref" || use["kernel"] == "composed") << use;
  }
}

// A dump holds every stage, and its noise gives the picture again.
TEST(Model, DumpsReproduceThePicture) {
  const ScratchDirectory directory;
  ASSERT_EQ(RunSegue(Generate({"--prompt", "x", "--seed", "3", "--output", "a.png", "--dump", "d"}),
                     directory)
                .status,
            0);
  const Outcome again = RunSegue(Generate({"--prompt", "x", "--output", "b.png", "--latents",
                                           "d/seed-3.safetensors", "--dump", "d"}),
                                 directory);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(RunSegue({"compare", "a.png", "b.png"}, directory).status, 0);
  const Outcome stages =
      RunSegue({"compare", "d/seed-3.safetensors", "d/given-noise.safetensors"}, directory);
  EXPECT_EQ(stages.status, 0) << stages.out;
  for (const char* name : {"prompt.ids", "prompt.embeddings", "sigmas", "noise", "final_latents"}) {
    EXPECT_NE(stages.out.find(name), std::string::npos) << name;
  }
  // Noise of another size is refused, with the size it should have.
  const Outcome other = RunSegue(Generate({"--prompt", "x", "--output", "c.png", "--latents",
                                           "d/seed-3.safetensors", "--size", "16x16"}),
                                 directory);
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("latents: got "), std::string::npos) << other.err;
}

TEST(Model, CompareMeasuresReferenceKernelsAndRounding) {
  const ScratchDirectory directory;
  const auto run = [&](const std::string& name, const Arguments& more) {
    Arguments arguments = Generate({"--prompt", "x", "--seed", "3", "--output", name + ".png"});
    arguments.insert(arguments.end(), {"--dump", name});
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(RunSegue(arguments, directory).status, 0);
  };
  run("fast", {});
  run("plain", {"--reference"});
  run("bf16", {"--bf16"});
  const Outcome near = RunSegue(
      {"compare", "fast/seed-3.safetensors", "plain/seed-3.safetensors", "--relative", "2e-5"},
      directory);
  EXPECT_EQ(near.status, 0) << near.out;
  const Outcome far = RunSegue(
      {"compare", "fast/seed-3.safetensors", "bf16/seed-3.safetensors", "--json"}, directory);
  EXPECT_EQ(far.status, 1);
  EXPECT_EQ(nlohmann::json::parse(far.out)["equal"], false);
  EXPECT_EQ(RunSegue({"compare", "fast.png", "plain.png", "--tolerance", "1", "--share", "0.999"},
                     directory)
                .status,
            0);
  const Outcome share =
      RunSegue({"compare", "fast/seed-3.safetensors", "fast/seed-3.safetensors", "--share", "0.9"},
               directory);
  EXPECT_EQ(share.status, 2);
  EXPECT_EQ(RunSegue({"compare", "fast.png", "fast/seed-3.safetensors"}, directory).status, 2);
  EXPECT_EQ(RunSegue({"compare", "fast.png", "none.png"}, directory).status, 4);
}

// Ctrl-C in the middle of real steps; on a terminal, as a person would.
TEST(Model, CtrlCLeavesNothing) {
  const ScratchDirectory directory;
  Child child = Segue(
      Generate({"--prompt", "x", "--size", "256x256", "--steps", "1000", "--output", "a.png"}),
      directory);
  child.terminal_columns = 80;
  child.signal = SIGINT;
  child.signal_when = "s/step";
  const Outcome outcome = RunChild(child);
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find("interrupted by "), std::string::npos);
  EXPECT_EQ(directory.Names(), Arguments{});
}

// A copy of the model whose file `name` is changed by `change`.
template <typename Change>
void CopyModel(const std::string& to, const std::string& name, const Change& change) {
  std::filesystem::copy(kTiny, to, std::filesystem::copy_options::recursive);
  WriteText(to + "/" + name, change(ReadText(to + "/" + name)));
}

// A safetensors file with all data bits set: a NaN in every float type. The header's length is the
// first 8 bytes, little-endian.
std::string AllNan(std::string file) {
  size_t header = 0;
  for (size_t i = 8; i-- > 0;) header = header << 8 | static_cast<uint8_t>(file[i]);
  std::fill(file.begin() + static_cast<std::ptrdiff_t>(8 + header), file.end(), '\xff');
  return file;
}

// B060: weights that are not numbers never become a black picture.
TEST(Model, NonFiniteWeightsAreAnErrorWithoutAFile) {
  for (const char* name : {"vae/diffusion_pytorch_model.safetensors",
                           "transformer/diffusion_pytorch_model-00002-of-00003.safetensors"}) {
    const ScratchDirectory directory;
    CopyModel(directory.File("model"), name, AllNan);
    const Outcome outcome =
        RunSegue(Generate({"--prompt", "x", "--output", "a.png"}, "model"), directory);
    EXPECT_EQ(outcome.status, 8) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(directory.Names(), Arguments{"model"});
  }
}

TEST(Model, InspectPlansEverySizeAskedFor) {
  const ScratchDirectory directory;
  const Outcome outcome =
      RunSegue({"inspect", kTiny, "--size", "64x64", "--size", "4096x4096", "--tensors", "--json"},
               directory);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  int64_t transformer = 0;
  for (const nlohmann::json& component : json["components"]) {
    if (component["name"] != "transformer") continue;
    EXPECT_EQ(component["class"], "QwenImageTransformer2DModel");
    EXPECT_EQ(component["tensors"].size(), component["tensor_count"]);
    transformer = component["bytes"];
  }
  EXPECT_GT(transformer, 0);
  ASSERT_EQ(json["memory"].size(), 2U);
  EXPECT_EQ(json["memory"][0]["width"], 64);
  EXPECT_EQ(json["memory"][0]["fits"], true);
  EXPECT_GT(json["memory"][1]["peak"], json["memory"][0]["peak"]);
  const Outcome plain = RunSegue({"inspect", kTiny}, directory);
  EXPECT_NE(plain.out.find("80x48"), std::string::npos) << plain.out;
  EXPECT_EQ(RunSegue({"inspect", "nowhere"}, directory).status, 4);
}

TEST(Model, VerifyNamesTheWeightThatIsNotFinite) {
  const ScratchDirectory directory;
  EXPECT_EQ(RunSegue({"verify", kTiny}, directory).status, 0);
  CopyModel(directory.File("model"), "vae/diffusion_pytorch_model.safetensors", AllNan);
  const Outcome outcome = RunSegue({"verify", "model"}, directory);
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("tensor \"decoder.conv_in.bias\": got 12 of 12 values not finite"),
            std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("unsound: "), std::string::npos);
  EXPECT_EQ(RunSegue({"verify", "nowhere"}, directory).status, 4);
}

TEST(Model, UnsoundCheckpointsAreNamedBeforeComputing) {
  const std::string weights = "vae/diffusion_pytorch_model.safetensors";
  {
    const ScratchDirectory directory;
    CopyModel(directory.File("model"), weights, [](const std::string&) {
      return std::string("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    });
    const Outcome outcome =
        RunSegue(Generate({"--prompt", "x", "--output", "a.png"}, "model"), directory);
    EXPECT_EQ(outcome.status, 5) << outcome.err;
    EXPECT_NE(outcome.err.find(weights), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("step"), std::string::npos);
    EXPECT_EQ(directory.Names(), Arguments{"model"});
  }
  const ScratchDirectory directory;
  EXPECT_EQ(RunSegue(Generate({"--prompt", "x"}, "nowhere"), directory).status, 4);
  EXPECT_EQ(directory.Names(), Arguments{});
}

}  // namespace
}  // namespace segue
