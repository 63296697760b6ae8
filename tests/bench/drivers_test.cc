// The drivers verify what they time: small cases, whose speed is of no interest here.
#include <gtest/gtest.h>

#include "bench/suite.h"

namespace segue::bench {
namespace {

SuiteOptions Quick() {
  SuiteOptions options;
  options.threads = 1;
  options.measure = {.warmup_s = 0, .block_s = 0};
  return options;
}

Result<Report> RunText(const char* text) {
  const Result<std::vector<Case>> cases = ParseSuite(text);
  EXPECT_TRUE(cases.ok());
  return RunSuite(*cases, Quick(), [](const Row&) {});
}

TEST(Drivers, ProductsRunInEveryDtype) {
  for (const std::string dtype : {"BF16", "F16", "F32"}) {
    const std::string text = "product small m=5 n=33 k=70 weights=" + dtype;
    const Result<Report> report = RunText(text.c_str());
    ASSERT_TRUE(report.ok()) << report.error().Message();
    ASSERT_EQ(report->rows.size(), 1u);
    const Row& row = report->rows[0];
    EXPECT_EQ(row.case_name, "small");
    EXPECT_FALSE(row.variant.empty());
    EXPECT_GT(*row.rate, 0.0);
    // A ratio exactly where there is a peer to have one with.
    EXPECT_EQ(row.ratio.has_value(), !row.peer.empty());
  }
}

TEST(Drivers, AttentionRunsOverTwoSegments) {
  const Result<Report> report = RunText("attention small text=3 image=50 heads=2 head_dim=16");
  ASSERT_TRUE(report.ok()) << report.error().Message();
  ASSERT_EQ(report->rows.size(), 1u);
  EXPECT_GT(*report->rows[0].rate, 0.0);
}

TEST(Drivers, BadValuesAreErrorsThatNameThem) {
  EXPECT_EQ(RunText("product small m=5 n=33").error().got, "no k");
  EXPECT_EQ(RunText("product small m=5 n=33 k=1 weights=F8").error().got, "F8");
  EXPECT_EQ(RunText("generate x model=nowhere width=64 height=64 steps=1 guidance=1").error().code,
            ErrorCode::kNotFound);
}

// Values are read before a GPU is looked for.
TEST(Drivers, BadValuesOfGpuCasesAreErrorsThatNameThem) {
  const auto error = [](const std::string& text) {
    const std::vector<Case> cases = *ParseSuite(text);
    const auto rows = Drivers().at(cases[0].driver)(cases[0], Quick());
    return rows.ok() ? "" : rows.error().argument + ": " + rows.error().got;
  };
  EXPECT_EQ(error("gpu_attention x heads=2 lengths=-1"), "case x: lengths: -1");
  EXPECT_EQ(error("gpu_in_place x text=1 image=1 heads=0"), "case x: heads: 0");
  EXPECT_EQ(error("gpu_pack x lengths=8 heads=2"), "case x: no text");
  EXPECT_EQ(error("gpu_scatter x text=8 heads=2"), "case x: no image");
  EXPECT_EQ(error("gpu_rows x op=gelu text=1 image=1"), "case x: no width");
  EXPECT_EQ(error("gpu_rows x op=gelu text=1 image=0 width=8"), "case x: no rows or no columns");
  EXPECT_EQ(error("gpu_rows x op=dance text=1 image=1 width=8"), "case x: op=dance");
  EXPECT_EQ(error("gpu_rows x op=heads text=1 image=1 width=8"), "case x: op=heads");
  EXPECT_EQ(error("gpu_rows x op=norm text=1 image=1 width=8 rounding=up"), "case x: rounding=up");
  EXPECT_EQ(error("gpu_host x sequences=3000 heads=2 longest=5"), "case x: sequences: 3000");
  EXPECT_EQ(error("gpu_host x sequences=3 heads=2"), "case x: no longest");
  EXPECT_EQ(error("gpu_sum x"), "case x: no kib");
  EXPECT_EQ(error("gpu_sum x kib=40000"), "case x: 40000 KiB");
  EXPECT_EQ(error("gpu_sum x kib=1 ranks=9"), "case x: 9 ranks");
  EXPECT_EQ(error("gpu_sum x kib=1 unroll=3"), "case x: ctas=0 threads=512 unroll=3");
  EXPECT_EQ(error("gpu_sum_norm x image=1 text=0 width=7"), "case x: no rows or no columns");
  EXPECT_EQ(error("gpu_load x mib=0"), "case x: mib: 0");
  const std::string dit = "gpu_dit x width=64 height=64 text=9 requests=1 guided=0 layers=1 ";
  EXPECT_EQ(error(dit + "peer=dance"), "case x: peer: dance");
  EXPECT_EQ(error(dit + "part=half"), "case x: part=half and sizes");
  EXPECT_EQ(error("gpu_text x tokens=0 layers=1"), "case x: peer_mode=eager and counts");
  EXPECT_EQ(error("gpu_text x tokens=9 layers=1 peer_mode=fast"),
            "case x: peer_mode=fast and counts");
  const std::string image = "gpu_image x width=64 height=64 steps=2 guidance=2 ";
  EXPECT_EQ(error(image + "pictures=0"), "case x: pictures: 0");
  EXPECT_EQ(error(image + "pictures=1 model=nowhere tokenizer=nowhere"),
            "nowhere: No such file or directory");
}

// What `image-50` does on a GPU.
TEST(Drivers, PicturesAreTimedByStages) {
  const std::string text = "gpu_image small width=64 height=64 steps=4 guidance=4 pictures=2 " +
                           std::string("device=cpu model=") + SEGUE_SOURCE_DIR + "/models/emoji";
  const std::vector<Case> cases = *ParseSuite(text);
  const auto rows = Drivers().at("gpu_image")(cases[0], Quick());
  ASSERT_TRUE(rows.ok()) << rows.error().Message();
  ASSERT_EQ(rows->size(), 4u);
  EXPECT_EQ((*rows)[0].case_name, "small");
  EXPECT_EQ((*rows)[1].case_name, "small-total");
  double stages = 0;
  for (const size_t part : {0, 2, 3}) stages += *(*rows)[part].min_us;
  EXPECT_GE(*(*rows)[1].max_us, stages);
}

TEST(Drivers, PicturesOfRandomWeightsBorrowATokenizer) {
  const std::string model = std::string(SEGUE_SOURCE_DIR) + "/models/emoji";
  const std::string text = "gpu_image small width=64 height=64 steps=2 guidance=1 pictures=1 " +
                           std::string("device=cpu model=") + model + " tokenizer=" + model +
                           "/tokenizer";
  const std::vector<Case> cases = *ParseSuite(text);
  const auto rows = Drivers().at("gpu_image")(cases[0], Quick());
  ASSERT_TRUE(rows.ok()) << rows.error().Message();
  EXPECT_EQ((*rows)[0].note, "random weights");
}

}  // namespace
}  // namespace segue::bench
