// The parts of the command line that need no child process.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/output_file.h"
#include "cli/process.h"
#include "cli/progress.h"
#include "cli/table.h"

namespace segue::cli {
namespace {

TEST(Progress, SecondsAreForPeople) {
  EXPECT_EQ(FormatSeconds(0), "0.0 s");
  EXPECT_EQ(FormatSeconds(0.84), "0.8 s");
  EXPECT_EQ(FormatSeconds(59.4), "59 s");
  EXPECT_EQ(FormatSeconds(59.6), "1 min 00 s");
  EXPECT_EQ(FormatSeconds(3599), "59 min 59 s");
  EXPECT_EQ(FormatSeconds(7500), "2 h 05 min");
}

TEST(Progress, BarsShrinkToTheTerminal) {
  const ProgressState state{.step = 5, .steps = 20, .seconds_per_step = 0.052};
  const std::string plain = "step 5/20  0.052 s/step  0.8 s left";
  EXPECT_EQ(PlainProgress(state), plain);
  EXPECT_EQ(BarProgress(state, 200), "[##########" + std::string(30, '.') + "] " + plain);
  EXPECT_EQ(BarProgress(state, 48), "[##........] " + plain);
  EXPECT_EQ(BarProgress(state, 47), plain);
  EXPECT_EQ(BarProgress(state, 35), plain);
  EXPECT_EQ(BarProgress(state, 34), "step 5/20");
  EXPECT_EQ(BarProgress(state, 4), "step");
  EXPECT_EQ(BarProgress(state, 0), "");
  const ProgressState many{.picture = 2, .pictures = 4, .step = 1, .steps = 1};
  EXPECT_EQ(PlainProgress(many), "picture 2/4  step 1/1  0 s/step  0.0 s left");
}

TEST(Console, OneLineHidesControlCharacters) {
  EXPECT_EQ(OneLine("plain \u4e2d"), "plain \u4e2d");
  EXPECT_EQ(OneLine("a\nb\tc\rd"), "a\\nb\\tc\\x0dd");
  EXPECT_EQ(OneLine("\x1b[31mred"), "\\x1b[31mred");
  EXPECT_EQ(OneLine("a\xff"
                    "b\xfe"),
            "a\\xffb\\xfe");
  EXPECT_EQ(OneLine("\xe4\xb8"), "\\xe4\\xb8");
}

TEST(Console, BytesAreForPeople) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(int64_t{57} << 30), "57.0 GiB");
}

TEST(Table, ColumnsLineUp) {
  Table table({1});
  table.Add({"name", "bytes", "note"});
  table.Add({"a", "12345"});
  table.Add({"longer", "1", "x"});
  EXPECT_EQ(table.Text("  "), "  name    bytes  note\n  a       12345\n  longer      1  x\n");
}

TEST(OutputPattern, PlaceholdersAndNumbers) {
  EXPECT_EQ((OutputPattern{.text = "a.png"}).Path(0, 7), "a.png");
  EXPECT_EQ((OutputPattern{.text = "d/a.png", .count = 3}).Path(1, 7), "d/a-2.png");
  EXPECT_EQ((OutputPattern{.text = "{index}-{seed}.png", .count = 3}).Path(1, 7), "2-7.png");
  EXPECT_EQ((OutputPattern{.text = "{seed}{seed}.png"}).Path(0, 7), "77.png");
  EXPECT_TRUE((OutputPattern{.text = "{seed}.png"}).Check().ok());
  for (const char* bad : {"", "a", ".png", "d/.png", "a.png/", "a.PNG", "{x}.png", "{seed.png"}) {
    EXPECT_FALSE((OutputPattern{.text = bad}).Check().ok()) << bad;
  }
}

// A file that appears between the check and the end of the work: neither is lost.
TEST(OutputFile, ANameTakenMeanwhileIsEvaded) {
  const ScratchDirectory directory;
  const std::string path = directory.File("a.png");
  ASSERT_TRUE(CheckWritable(path, 1, Existing::kRefuse).ok());
  WriteText(path, "another's");
  const Result<std::string> name = WriteWholeFile(path, {'m', 'i', 'n', 'e'}, Existing::kRefuse);
  ASSERT_TRUE(name.ok()) << name.error().Message();
  EXPECT_EQ(*name, directory.File("a-1.png"));
  EXPECT_EQ(ReadText(*name), "mine");
  EXPECT_EQ(ReadText(path), "another's");
  EXPECT_EQ(*WriteWholeFile(path, {'n', 'e', 'w'}, Existing::kReplace), path);
  EXPECT_EQ(ReadText(path), "new");
  EXPECT_EQ(directory.Names(), (std::vector<std::string>{"a-1.png", "a.png"}));
}

TEST(OutputFile, AFullFileSystemIsSeenBeforeComputing) {
  const ScratchDirectory directory;
  const Status status = CheckWritable(directory.File("a.png"), std::numeric_limits<int64_t>::max(),
                                      Existing::kRefuse);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_NE(status.error().got.find(" free"), std::string::npos);
  EXPECT_EQ(status.error().wanted, "8.0 EiB");
  EXPECT_EQ(directory.Names(), std::vector<std::string>{});
}

}  // namespace
}  // namespace segue::cli
