// `segue quality`: verdicts and refusals with the fake engine, one run with a real model.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/fake_cli.h"
#include "cli/quality_suite.h"
#include "segue/quality.h"

namespace segue {
namespace {

using Arguments = std::vector<std::string>;

// Eight pictures; seeds that are levels for the fake engine.
std::string Suite(const std::string& size, int steps) {
  std::string text = "# seed size steps guidance prompt\n\n";
  for (int seed = 100; seed < 108; ++seed) {
    text += std::to_string(seed) + " " + size + "\t" + std::to_string(steps) + " 4  cat face\n";
  }
  return text;
}

Outcome RunQuality(const std::string& model, const Arguments& more = {}) {
  const ScratchDirectory directory;
  WriteText(directory.File("suite.txt"), Suite("64x48", 4));
  Arguments all = {"quality", "--model", model, "--suite", "suite.txt"};
  all.insert(all.end(), more.begin(), more.end());
  return RunFake(all, directory);
}

nlohmann::json EntryOf(const nlohmann::json& document, const std::string& name) {
  for (const nlohmann::json& entry : document["entries"]) {
    if (entry["name"] == name) return entry;
  }
  ADD_FAILURE() << "no entry " << name;
  return {};
}

TEST(Quality, EveryGateAndTheTierAreJudged) {
  const Outcome outcome = RunQuality("fake", {"--json", "-q"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const nlohmann::json document = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(document["ok"], true);
  EXPECT_EQ(document["lossless_again"], true);
  EXPECT_EQ(document["pictures"].size(), 8u);
  EXPECT_EQ(document["entries"].size(), QualityGates().size() + 1);
  for (const GateInfo& gate : QualityGates()) {
    const nlohmann::json entry = EntryOf(document, gate.name);
    EXPECT_EQ(entry["binding"], gate.in_high);
    if (gate.name == "packed-text-qkv") {
      EXPECT_EQ(entry["refused"][0]["reason"], "not in\na fake model");
      EXPECT_FALSE(entry.contains("worst_psnr_db"));
      continue;
    }
    EXPECT_EQ(entry["mounted"], nlohmann::json::array({gate.name}));
    EXPECT_NEAR(entry["worst_psnr_db"].get<double>(), 48.13, 0.01);  // one level
    EXPECT_EQ(entry["different_pictures"], 8);
    EXPECT_EQ(entry["keeps"], true);
  }
  EXPECT_EQ(EntryOf(document, "high")["kind"], "tier");
}

TEST(Quality, ATierBelowTheLimitsIsANo) {
  const Outcome outcome = RunQuality("fake-coarse", {"--json", "-q"});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  const nlohmann::json document = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(document["ok"], false);
  EXPECT_NEAR(EntryOf(document, "high")["worst_psnr_db"].get<double>(), 28.13, 0.01);
  EXPECT_EQ(EntryOf(document, "high")["keeps"], false);
  EXPECT_EQ(EntryOf(document, "float32-norms")["keeps"], false);  // a candidate binds nothing
  EXPECT_EQ(EntryOf(document, "gelu-epilogue")["keeps"], true);
  const Outcome table = RunQuality("fake-coarse");
  EXPECT_EQ(table.status, 1);
  EXPECT_NE(table.out.find("BELOW    high"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("(BELOW)  float32-norms"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("packed-text-qkv: not in\\na fake model\n"), std::string::npos)
      << table.out;
  EXPECT_NE(table.err.find("high gelu-epilogue: picture 8 of 8\n"), std::string::npos) << table.err;
}

TEST(Quality, WhatLeaksIntoLosslessIsANo) {
  const Outcome outcome = RunQuality("fake-leak", {"-q"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.out.find("LOSSLESS AFTERWARDS: OTHER BYTES"), std::string::npos) << outcome.out;
}

TEST(Quality, GatesCanBeJudgedByName) {
  const Outcome outcome = RunQuality("fake", {"--gates", "float32-heads", "--json", "-q"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const nlohmann::json document = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(document["entries"].size(), 2u);
  EXPECT_EQ(document["entries"][0]["name"], "float32-heads");
  for (const char* gates : {"", "float32-heads,", "nothing", "float32-heads,float32-heads"}) {
    EXPECT_EQ(RunQuality("fake", {"--gates", gates}).status, 2) << gates;
  }
}

TEST(Quality, ListsTheGates) {
  const ScratchDirectory directory;
  const Outcome outcome = RunFake({"quality", "--list"}, directory);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const GateInfo& gate : QualityGates()) {
    EXPECT_NE(outcome.out.find(gate.name + "  "), std::string::npos) << outcome.out;
  }
}

TEST(Quality, RefusesWhatItCannotJudge) {
  const ScratchDirectory directory;
  EXPECT_EQ(RunFake({"quality"}, directory).status, 2);
  EXPECT_EQ(RunQuality("fake", {"--cache", "x"}).status, 2);
  // The model's own suite is not there.
  const Outcome outcome = RunFake({"quality", "--model", "fake"}, directory);
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.err.find("fake/quality.txt"), std::string::npos) << outcome.err;
}

TEST(QualitySuite, TakesALineAPicture) {
  const auto suite = cli::ParseQualitySuite("s", Suite("64x32", 5) + "7 16x16 1 1.5 a  b \r\n");
  ASSERT_TRUE(suite.ok()) << suite.error().Message();
  ASSERT_EQ(suite->size(), 9u);
  EXPECT_EQ((*suite)[0].seed, 100u);
  EXPECT_EQ((*suite)[0].width, 64);
  EXPECT_EQ((*suite)[0].height, 32);
  EXPECT_EQ((*suite)[0].steps, 5);
  EXPECT_EQ((*suite)[0].prompt, "cat face");
  EXPECT_EQ((*suite)[8].guidance, 1.5);
  EXPECT_EQ((*suite)[8].prompt, "a  b ");
}

TEST(QualitySuite, ErrorsNameTheLine) {
  for (const char* line : {"1 64x32 5 4", "x 64x32 5 4 cat", "1 64x30 5 4 cat", "1 64x32 0 4 cat",
                           "1 64x32 5 much cat", "1 64x32 5 4 \xff"}) {
    const auto suite = cli::ParseQualitySuite("s.txt", std::string("# head\n") + line + "\n");
    ASSERT_FALSE(suite.ok()) << line;
    EXPECT_NE(suite.error().Message().find("s.txt, line 2"), std::string::npos)
        << suite.error().Message();
  }
  const auto few = cli::ParseQualitySuite("s.txt", "1 64x32 5 4 cat\n");
  ASSERT_FALSE(few.ok());
  EXPECT_NE(few.error().Message().find("1 pictures, wanted at least 8"), std::string::npos)
      << few.error().Message();
}

// The trained model, small: what the tier mounts on the CPU keeps what it has to.
TEST(Quality, TheTierKeepsItsLimitsOnTheEmojiModel) {
  const ScratchDirectory directory;
  WriteText(directory.File("suite.txt"), Suite("64x64", 5));
  Child child{.directory = directory.path()};
  child.command = {SEGUE_BINARY, "quality",   "--model", SEGUE_SOURCE_DIR "/models/emoji",
                   "--suite",    "suite.txt", "--json",  "-q"};
  const Outcome outcome = RunChild(child);
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const nlohmann::json document = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(document["device"], "cpu");
  EXPECT_EQ(document["lossless_again"], true);
  for (const char* name : {"gelu-epilogue", "float32-norms", "float32-heads", "high"}) {
    const nlohmann::json entry = EntryOf(document, name);
    EXPECT_EQ(entry["keeps"], true) << entry.dump();
    EXPECT_GT(entry["different_pictures"], 0) << name << " changed nothing";
  }
  EXPECT_TRUE(EntryOf(document, "packed-text-qkv")["mounted"].empty());
}

// The suite that is committed parses and is large enough.
TEST(QualitySuite, TheEmojiModelHasOne) {
  const std::string path = SEGUE_SOURCE_DIR "/models/emoji/quality.txt";
  const auto suite = cli::ParseQualitySuite(path, ReadText(path));
  ASSERT_TRUE(suite.ok()) << suite.error().Message();
  EXPECT_GE(suite->size(), 8u);
}

}  // namespace
}  // namespace segue
