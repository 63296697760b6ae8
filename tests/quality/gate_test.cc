// Which gates are asked for, mounted and refused.
#include "quality/gate.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace segue::quality {
namespace {

std::vector<std::string> Names(const GateSet& set) {
  return Mounting{.mounted = {.tier = Quality::kHigh, .gates = set}, .refused = {}}
      .Report()
      .mounted;
}

std::vector<std::string> HighNames() {
  std::vector<std::string> names;
  for (const GateInfo& info : QualityGates()) {
    if (info.in_high) names.push_back(info.name);
  }
  return names;
}

TEST(Tiers, HaveNamesThatComeBack) {
  for (const Quality tier : {Quality::kLossless, Quality::kHigh}) {
    const Result<Quality> parsed = ParseQuality(QualityName(tier));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, tier);
  }
  for (const char* name : {"", "High", "ultra", "high "}) {
    const Result<Quality> parsed = ParseQuality(name);
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(parsed.error().Message(), std::string("check request: quality: got '") + name +
                                            "', wanted one of lossless, high");
  }
}

TEST(Gates, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const GateInfo& info : QualityGates()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.site.empty());
    EXPECT_FALSE(info.change.empty());
  }
  EXPECT_EQ(names.size(), kGates);
}

TEST(AskedGates, AreTheTiersOrThoseNamed) {
  const auto lossless = AskedGates(Quality::kLossless, {});
  ASSERT_TRUE(lossless.ok());
  EXPECT_TRUE(lossless->empty());
  const auto high = AskedGates(Quality::kHigh, {});
  ASSERT_TRUE(high.ok());
  EXPECT_EQ(Names(*high), HighNames());
  const std::vector<std::string> two = {"float32-heads", "gelu-epilogue"};
  const auto named = AskedGates(Quality::kHigh, two);
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(Names(*named), (std::vector<std::string>{"gelu-epilogue", "float32-heads"}));
}

TEST(AskedGates, RefuseWhatCannotBe) {
  const std::vector<std::string> unknown = {"gelu-epilogue", "teacache"};
  const auto refused = AskedGates(Quality::kHigh, unknown);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().Message().find("teacache"), std::string::npos);
  EXPECT_NE(refused.error().Message().find("float32-norms"), std::string::npos);
  const std::vector<std::string> one = {"gelu-epilogue"};
  EXPECT_FALSE(AskedGates(Quality::kLossless, one).ok());
  EXPECT_FALSE(AskedGates(static_cast<Quality>(7), {}).ok());
}

TEST(Mount, TakesWhatIsNotRefusedAndKeepsTheReasons) {
  const std::vector<std::string> two = {"gelu-epilogue", "float32-norms"};
  const auto asked = AskedGates(Quality::kHigh, two);
  ASSERT_TRUE(asked.ok());
  const Mounting mounting = Mount(Quality::kHigh, *asked, [](Gate gate) {
    return gate == Gate::kFloat32Norms ? std::string("no norms here") : std::string();
  });
  const QualityReport report = mounting.Report();
  EXPECT_EQ(report.tier, Quality::kHigh);
  EXPECT_EQ(report.mounted, std::vector<std::string>{"gelu-epilogue"});
  ASSERT_EQ(report.refused.size(), 1u);
  EXPECT_EQ(report.refused[0].name, "float32-norms");
  EXPECT_EQ(report.refused[0].reason, "no norms here");
  // What nobody asked for is neither mounted nor asked about.
  const Mounting none = Mount(Quality::kLossless, {}, [](Gate) -> std::string {
    ADD_FAILURE() << "asked";
    return "";
  });
  EXPECT_TRUE(none.Report().mounted.empty());
  EXPECT_TRUE(none.Report().refused.empty());
}

TEST(MountedGates, TellTiersAndSetsApart) {
  const MountedGates lossless;
  const MountedGates high = {.tier = Quality::kHigh, .gates = {}};  // all refused
  MountedGates one = high;
  one.gates.Add(Gate::kFloat32Heads);
  EXPECT_NE(lossless, high);
  EXPECT_NE(high, one);
  EXPECT_EQ(lossless.ToString(), "lossless");
  EXPECT_EQ(high.ToString(), "high");
  one.gates.Add(Gate::kGeluEpilogue);
  EXPECT_EQ(one.ToString(), "high:gelu-epilogue,float32-heads");
}

}  // namespace
}  // namespace segue::quality
