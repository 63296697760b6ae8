// segue plan attention: what is asked for, and what is wrong with it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/fake_cli.h"

namespace segue {
namespace {

using Arguments = std::vector<std::string>;

Outcome PlanAttention(const Arguments& more) {
  Arguments all = {"plan", "attention"};
  all.insert(all.end(), more.begin(), more.end());
  const ScratchDirectory directory;
  return RunFake(all, directory);
}

nlohmann::json MustPlan(Arguments more) {
  more.emplace_back("--json");
  const Outcome outcome = PlanAttention(more);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return outcome.status == 0 ? nlohmann::json::parse(outcome.out) : nlohmann::json();
}

void ExpectError(const Arguments& more, int status, const std::string& expected) {
  const Outcome outcome = PlanAttention(more);
  EXPECT_EQ(outcome.status, status) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find(expected), std::string::npos) << outcome.err;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(PlanAttention, ShowsTilesOrderAndBackEnd) {
  const Outcome outcome =
      PlanAttention({"--heads", "24", "--lengths", "64+5120", "--gpu", "9.0:132", "--tiles", "2"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* part :
       {"24 query and 24 key/value heads of 128, bfloat16, not causal, on CUDA",
        "132 multiprocessors",
        "at most 1 sequence of 2 segments, 5184 query rows, in 2 tensor sets",
        "back end sm90: chosen\n", "back end cudnn: sm90 comes first\n",
        "back end cuda: sm90 comes first\n", "back end cpu: works on host memory only\n",
        "planned for: as given\n", "lengths: 1 sequence, 5184 query rows, 5184 key rows\n",
        "tiles: 1044 of at most 128 query rows", "order: fixed", "7.91 waves",
        "the last 120 tiles are halves", "tiles taken: 7 to 8 a worker", "entry  sequence  head",
        "..."}) {
    EXPECT_TRUE(Has(outcome.out, part)) << part << "\n" << outcome.out;
  }
  EXPECT_TRUE(Has(outcome.out, "    0         0     0  0..64")) << outcome.out;
}

TEST(PlanAttention, JsonHoldsEveryTile) {
  const nlohmann::json json = MustPlan(
      {"--heads", "4", "--kv-heads", "2", "--lengths", "64:0+300,14+4096", "--gpu", "9.0:132"});
  EXPECT_EQ(json["backend"], "sm90");
  EXPECT_EQ(json["kv_heads"], 2);
  EXPECT_EQ(json["segments"], 2);
  EXPECT_EQ(json["gpu"]["here"], false);
  const nlohmann::json& work = json["work"];
  EXPECT_EQ(work["dynamic"], true);
  ASSERT_EQ(work["tiles"].size(), 4U * (1 + 3 + 1 + 32));
  EXPECT_EQ(work["tiles"][0]["sequence"], 1);
  EXPECT_EQ(work["tiles"][0]["key_tiles"], (16 + 4096 + 175) / 176);
  int64_t rows = 0;
  for (const nlohmann::json& tile : work["tiles"]) rows += tile["query_rows"].get<int64_t>();
  EXPECT_EQ(rows, 4 * (364 + 4110));
  EXPECT_EQ(work["workers"].size(), 132U);
}

TEST(PlanAttention, SmallHeadsWithLengthsOnTheDevice) {
  const nlohmann::json json = MustPlan({"--heads", "6", "--head-dim", "32", "--lengths", "20+256",
                                        "--gpu", "9.0:132", "--device-lengths"});
  EXPECT_EQ(json["backend"], "cuda");
  EXPECT_EQ(json["work"]["tiles"].size(), 2U * 6 * (1 + 2));
}

TEST(PlanAttention, PlansForTheCpu) {
  const nlohmann::json json = MustPlan({"--heads", "3", "--lengths", "20:77,200", "--place", "cpu",
                                        "--dtype", "f32", "--threads", "2", "--backend", "ref"});
  EXPECT_EQ(json["backend"], "ref");
  EXPECT_TRUE(json["work"].is_null());
  EXPECT_EQ(json["workspace_bytes"], 0);
  EXPECT_FALSE(json.contains("gpu"));
}

TEST(PlanAttention, SaysWhyNoBackEndServes) {
  ExpectError({"--heads", "8", "--lengths", "20", "--gpu", "8.0:108", "--backend", "sm90"}, 6,
              "sm90: compute capability 8.0, not 9.0");
  ExpectError({"--heads", "8", "--lengths", "20", "--gpu", "9.0:132", "--backend", "sm90",
               "--head-dim", "64"},
              6, "sm90: head_dim is not 128");
  ExpectError({"--heads", "8", "--lengths", "20", "--backend", "fa3"}, 2, "got fa3, wanted one of");
}

TEST(PlanAttention, ReadsValuesStrictly) {
  const auto lengths = [](const std::string& text) {
    ExpectError({"--heads", "8", "--lengths", text}, 2, "--lengths: got '");
  };
  for (const char* text :
       {"", ",", "20,", "20++3", "1:2:3", "-1", "20 ", "2e3", "1:", "2147483648"}) {
    lengths(text);
  }
  ExpectError({"--heads", "8", "--lengths", "2147483647,1"}, 2, "2^31 - 1 rows");
  ExpectError({"--heads", "0", "--lengths", "20"}, 2, "--heads: got 0");
  ExpectError({"--heads", "8", "--kv-heads", "3", "--lengths", "20"}, 2, "kv_heads: got 3");
  for (const char* text : {"9.0", "9:132", "9.0:0", "9.0:132:1", "9.10:132", "x"}) {
    ExpectError({"--heads", "8", "--lengths", "20", "--gpu", text}, 2, "--gpu: got '");
  }
  ExpectError({"--heads", "8", "--lengths", "20", "--threads", "2"}, 2, "--place cpu beside it");
  ExpectError({"--heads", "8", "--lengths", "20", "--place", "cpu", "--gpu", "9.0:132"}, 2,
              "--place cuda beside it");
  ExpectError({"--heads", "8"}, 2, "--lengths is required (see 'segue plan attention --help')");
  ExpectError({"--heads", "8", "--lenghts", "20"}, 2,
              "unknown option '--lenghts', did you mean '--lengths'?");
}

TEST(PlanAttention, UnknownPlansAreNamed) {
  const ScratchDirectory directory;
  const Outcome wrong = RunFake({"plan", "atention"}, directory);
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(Has(wrong.err, "segue plan: unknown command 'atention', did you mean 'attention'?"));
  const Outcome none = RunFake({"plan"}, directory);
  EXPECT_EQ(none.status, 2);
  const Outcome help = RunFake({"plan", "attention", "--help"}, directory);
  EXPECT_EQ(help.status, 0);
  EXPECT_TRUE(Has(help.out, "Usage: segue plan attention"));
}

}  // namespace
}  // namespace segue
