#include "bench/suite.h"

#include <gtest/gtest.h>

#include <string>

#include "bench/gpu.h"

namespace segue::bench {
namespace {

TEST(Suite, ParsesCasesCommentsAndValues) {
  const auto cases = ParseSuite("# a comment\n\nproduct big m=3 n=-4 name=x # tail\nlast one\n");
  ASSERT_TRUE(cases.ok());
  ASSERT_EQ(cases->size(), 2u);
  const Case& big = (*cases)[0];
  EXPECT_EQ(big.driver, "product");
  EXPECT_EQ(big.name, "big");
  EXPECT_EQ(*big.Integer("m"), 3);
  EXPECT_EQ(*big.Integer("n"), -4);
  EXPECT_EQ(big.Text("name", "y"), "x");
  EXPECT_EQ(big.Text("absent", "y"), "y");
  EXPECT_FALSE(big.Integer("absent").ok());
  EXPECT_EQ(big.Integer("name").error().wanted, "a whole number");
}

TEST(Suite, BadLinesNameTheLine) {
  EXPECT_EQ(ParseSuite("product big m=3\nproduct\n").error().argument, "line 2");
  EXPECT_EQ(ParseSuite("product big m\n").error().got, "m");
  EXPECT_EQ(ParseSuite("product big =3\n").error().wanted, "key=value");
}

TEST(Suite, BuiltInSuitesParseAndNameKnownDrivers) {
  ASSERT_TRUE(BuiltInSuites().contains("cpu"));
  ASSERT_TRUE(BuiltInSuites().contains("attention"));
  for (const auto& [name, text] : BuiltInSuites()) {
    const auto cases = ParseSuite(text);
    ASSERT_TRUE(cases.ok()) << name << ": " << cases.error().Message();
    EXPECT_FALSE(cases->empty());
    for (const Case& one : *cases) EXPECT_TRUE(Drivers().contains(one.driver)) << one.driver;
  }
}

TEST(Suite, UnknownDriversAndEmptySelectionsAreErrors) {
  const std::vector<Case> cases = {{.driver = "nothing", .name = "x", .values = {}}};
  const auto ignore = [](const Row&) {};
  EXPECT_EQ(RunSuite(cases, {}, ignore).error().got, "nothing");
  SuiteOptions options;
  options.only = "y";
  EXPECT_EQ(RunSuite(cases, options, ignore).error().argument, "--only");
}

TEST(Suite, OnlySelectsByAnyOfItsParts) {
  const std::vector<Case> cases =
      *ParseSuite("product one m=1 n=1 k=1\nproduct two m=1 n=1 k=1\nproduct three m=1 n=1 k=1\n");
  SuiteOptions options;
  options.measure = {.warmup_s = 0, .block_s = 0};
  options.only = "tw,thr";
  std::string names;
  const auto report =
      RunSuite(cases, options, [&](const Row& row) { names += row.case_name + " "; });
  ASSERT_TRUE(report.ok()) << report.error().Message();
  EXPECT_EQ(names, "two three ");
}

TEST(Suite, AFailingCaseEndsTheRunUnlessItIsToGoOn) {
  const std::vector<Case> cases = *ParseSuite("product bad m=1\nproduct good m=1 n=1 k=1\n");
  SuiteOptions options;
  options.measure = {.warmup_s = 0, .block_s = 0};
  const auto ignore = [](const Row&) {};
  EXPECT_EQ(RunSuite(cases, options, ignore).error().got, "no n");
  options.keep_going = true;
  const auto report = RunSuite(cases, options, ignore);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->rows.size(), 1u);
  ASSERT_EQ(report->failures.size(), 1u);
  EXPECT_NE(report->failures[0].find("no n"), std::string::npos);
}

TEST(Suite, GpuCasesNeedAGpuAndSaySo) {
  const Result<GpuIdentity> gpu = IdentifyGpu();
  if (gpu.ok()) GTEST_SKIP() << "there is a GPU: " << gpu->name;
  const auto report =
      RunSuite(*ParseSuite("gpu_attention x lengths=8 heads=1"), {}, [](const Row&) {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(report.error().got.empty());
}

TEST(Measure, AlternatesAndTakesMedians) {
  std::string order;
  const auto contender = [&order](char mark) {
    return Contender{
        .name = std::string(1, mark), .version = "", .run = [&order, mark]() -> Status {
          order += mark;
          return {};
        }};
  };
  const auto comparison = Measure(contender('a'), contender('b'), {.warmup_s = 0, .block_s = 0});
  ASSERT_TRUE(comparison.ok());
  EXPECT_EQ(order, "aabbba");  // warm-up, a, warm-up, b, b, a
  EXPECT_EQ(comparison->ours.samples, 2);
  EXPECT_EQ(comparison->peer.samples, 2);

  const Times times = Summarize({5, 1, 4, 100});
  EXPECT_EQ(times.median_us, 4.5);
  EXPECT_EQ(times.min_us, 1);
  EXPECT_EQ(times.max_us, 100);
}

TEST(Measure, AFailingContenderEndsTheRun) {
  const Contender fails{.name = "x", .version = "", .run = []() -> Status {
                          return Error{.code = ErrorCode::kIo, .operation = "x"};
                        }};
  EXPECT_EQ(Measure(fails, {}, {}).error().code, ErrorCode::kIo);
}

TEST(Report, RatesAndRatiosFollowFromTheTimes) {
  Row row{.case_name = "c",
          .variant = "v",
          .mode = "hot",
          .unit = "GFLOP/s",
          .peer = "p",
          .peer_version = "1"};
  SetTimes({.ours = {.median_us = 100, .min_us = 90, .max_us = 110, .samples = 3},
            .peer = {.median_us = 150, .min_us = 140, .max_us = 160, .samples = 3}},
           2e7, 1e9, &row);
  EXPECT_DOUBLE_EQ(*row.rate, 200.0);
  EXPECT_DOUBLE_EQ(*row.ratio, 1.5);
  const Report report{
      .device = "d", .driver = "", .cuda = "", .commit = "c", .date = "2026-01-01", .rows = {row}};
  const std::string json = ReportJson(report);
  EXPECT_NE(json.find("\"ratio\": 1.5"), std::string::npos);
  EXPECT_NE(json.find("\"power_w\": null"), std::string::npos);
  EXPECT_NE(ReportTable(report).find("200.0 GFLOP/s"), std::string::npos);
}

}  // namespace
}  // namespace segue::bench
