#include "segue/status.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/shape.h"

namespace segue {
namespace {

Result<std::unique_ptr<int>> Half(int value) {
  if (value % 2 != 0) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = "halve",
                 .argument = "value",
                 .got = std::to_string(value),
                 .wanted = "an even number"};
  }
  return std::make_unique<int>(value / 2);
}

Result<int> Quarter(int value) {
  SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<int> half, Half(value));
  SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<int> quarter, Half(*half));
  return *quarter;
}

Status CheckQuarter(int value) {
  SEGUE_RETURN_IF_ERROR(Quarter(value));
  return {};
}

TEST(Status, ValuesAndErrorsTravelThroughTheMacros) {
  ASSERT_TRUE(Quarter(12).ok());
  EXPECT_EQ(*Quarter(12), 3);
  const Result<int> failed = Quarter(6);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().got, "3");
  EXPECT_EQ(failed.error().Message(), "halve: value: got 3, wanted an even number");
  EXPECT_TRUE(CheckQuarter(8).ok());
  EXPECT_EQ(CheckQuarter(3).error().code, ErrorCode::kInvalidArgument);
}

TEST(Status, EmptyPartsAreLeftOut) {
  EXPECT_EQ((Error{.operation = "load", .wanted = "a file"}.Message()), "load: wanted a file");
  EXPECT_EQ((Error{.operation = "load", .argument = "x"}.Message()), "load: x");
}

TEST(Shape, CountsComparesAndPrints) {
  const Shape shape{3, 4, 5};
  EXPECT_EQ(shape.NumElements(), 60);
  EXPECT_EQ(shape, (Shape{3, 4, 5}));
  EXPECT_NE(shape, (Shape{3, 4, 5, 1}));
  EXPECT_EQ(shape.ToString(), "[3, 4, 5]");
  EXPECT_EQ(Shape{}.ToString(), "[]");
}

}  // namespace
}  // namespace segue
