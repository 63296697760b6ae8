#include "bench/temporary_directory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

namespace segue::bench {
namespace {

TEST(TemporaryDirectory, IsThereAsLongAsItsObject) {
  std::string path;
  std::string other;
  {
    auto first = TemporaryDirectory::Create();
    const auto second = TemporaryDirectory::Create();
    ASSERT_TRUE(first.ok() && second.ok());
    path = first->path();
    other = second->path();
    EXPECT_NE(path, other);
    std::ofstream(path + "/file") << "text";
    std::optional<TemporaryDirectory> moved(std::move(*first));
    EXPECT_EQ(moved->path(), path);
    EXPECT_TRUE(std::filesystem::exists(path + "/file"));
    moved.reset();
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_TRUE(std::filesystem::exists(other));
  }
  EXPECT_FALSE(std::filesystem::exists(other));
}

TEST(TemporaryDirectory, SaysWhereNoneCanBeMade) {
  const char* set = std::getenv("TMPDIR");
  const std::string former = set == nullptr ? "" : set;
  setenv("TMPDIR", "/no/such/directory", 1);
  const auto directory = TemporaryDirectory::Create();
  set == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", former.c_str(), 1);
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(directory.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace segue::bench
