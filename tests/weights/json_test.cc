#include "model/weights/json.h"

#include <gtest/gtest.h>

#include <string>

#include "model/weights/json_fields.h"
#include "weights/files.h"

namespace segue::model {
namespace {

using segue::testing::Mentions;

Error Refusal(std::string_view text, const JsonLimits& limits = {}) {
  const Result<Json> json = ParseJson(text, "x.json", limits);
  if (json.ok()) {
    ADD_FAILURE() << "accepted " << text;
    return {};
  }
  return json.error();
}

TEST(Json, ReadsEveryKind) {
  const auto json = ParseJson(
      R"({"n":null,"t":true,"i":-7,"u":9223372036854775808,"d":0.5,"s":"\u00e9\n","a":[1,[]]})",
      "x.json");
  ASSERT_TRUE(json.ok()) << json.error().Message();
  EXPECT_TRUE(json->Find("n")->is_null());
  EXPECT_TRUE(*json->Find("t")->AsBool());
  EXPECT_EQ(*json->Find("i")->AsInteger(), -7);
  // Above int64_t: a number, but no integer.
  EXPECT_EQ(json->Find("u")->AsInteger(), nullptr);
  EXPECT_EQ(json->Find("u")->AsNumber(), 9223372036854775808.0);
  EXPECT_EQ(json->Find("d")->AsNumber(), 0.5);
  EXPECT_EQ(*json->Find("s")->AsString(), "é\n");
  EXPECT_EQ(json->Find("a")->AsArray()->size(), 2u);
  EXPECT_EQ(json->Find("absent"), nullptr);
  EXPECT_EQ(json->Find("s")->Describe(), "\"é\\x0a\"");
  EXPECT_EQ(json->Find("a")->Describe(), "an array of 2");
}

TEST(Json, RefusesWhatIsNotStrict) {
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\":1,}", "{a:1}", "'a'", "NaN", "Infinity",
                           "01", "1 2", "// x\n1", "\"\x01\"", "\"\\ud800\"", "1e999", "nul"}) {
    const Error error = Refusal(text);
    EXPECT_EQ(error.code, ErrorCode::kCorrupt) << text;
    EXPECT_EQ(error.argument, "x.json");
  }
  EXPECT_TRUE(Mentions(Refusal("\"\xff\""), {"UTF-8"}));
}

TEST(Json, RefusesRepeatedKeysAtAnyDepth) {
  EXPECT_TRUE(Mentions(Refusal(R"({"a":1,"b":2,"a":3})"), {"\"a\" twice"}));
  EXPECT_TRUE(Mentions(Refusal(R"([{"x":{"b":1,"b":1}}])"), {"\"b\" twice"}));
}

TEST(Json, KeepsItsLimits) {
  JsonLimits limits;
  limits.max_depth = 3;
  EXPECT_TRUE(ParseJson("[[[1]]]", "x.json", limits).ok());
  EXPECT_TRUE(Mentions(Refusal("[[[[1]]]]", limits), {"deeper than 3"}));
  EXPECT_TRUE(Mentions(Refusal(std::string(1000000, '[')), {"deeper than 32"}));
  limits.max_bytes = 4;
  EXPECT_TRUE(Mentions(Refusal("[1,2]", limits), {"5 bytes", "at most 4"}));
}

TEST(Json, ReportsFilesThatCannotBeRead) {
  const segue::testing::TempDirectory directory;
  EXPECT_EQ(ReadJsonFile(directory / "absent.json").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ReadTextFile(directory.path(), 100).error().code, ErrorCode::kIo);
  segue::testing::WriteFile(directory / "long", std::string(101, ' '));
  EXPECT_EQ(ReadTextFile(directory / "long", 100).error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(ReadTextFile(directory / "long", 101).ok());
}

TEST(JsonFields, KeepsDefaultsAndTheFirstError) {
  const Json json = ParseJson(R"({"a":3,"n":null,"s":"x","v":[1,"2"]})", "x.json").value();
  JsonFields fields(json, "x.json", "part");
  int64_t a = 1;
  int64_t absent = 5;
  int64_t null = 6;
  fields.Read("a", &a);
  fields.Read("absent", &absent);
  fields.Read("n", &null);
  EXPECT_EQ(a, 3);
  EXPECT_EQ(absent, 5);
  EXPECT_EQ(null, 6);
  EXPECT_TRUE(fields.status().ok());
  std::vector<int64_t> values;
  fields.Read("v", &values);
  fields.Read("s", &a);
  ASSERT_FALSE(fields.status().ok());
  EXPECT_TRUE(Mentions(fields.status().error(), {"x.json: part.v[1]", "\"2\"", "an integer"}));
  EXPECT_EQ(a, 3);
}

TEST(JsonFields, WantsAnObject) {
  const Json json = ParseJson("[]", "x.json").value();
  EXPECT_FALSE(JsonFields(json, "x.json").status().ok());
}

TEST(Quote, EscapesAndShortens) {
  EXPECT_EQ(Quote("a\x1b[0m"), "\"a\\x1b[0m\"");
  EXPECT_LT(Quote(std::string(1000, 'x')).size(), 140u);
}

}  // namespace
}  // namespace segue::model
