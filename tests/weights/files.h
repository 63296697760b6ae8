// Files for tests: a directory that goes away, and hand-made safetensors with every mistake in
// them.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>

#include "segue/status.h"

namespace segue::testing {

class TempDirectory {
 public:
  TempDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "segue-test-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TempDirectory() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void WriteFile(const std::string& path, std::string_view contents) {
  std::ofstream file(path, std::ios::binary);
  file.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  ASSERT_TRUE(file.good()) << path;
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Whether the file system tells where a sparse file has holes. Where it does not, a scan reads
// them.
inline bool ReportsHoles(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY);
  if (descriptor < 0) return false;
  const off_t end = ::lseek(descriptor, 0, SEEK_END);
  const off_t hole = ::lseek(descriptor, 0, SEEK_HOLE);
  ::close(descriptor);
  return hole >= 0 && hole < end;
}

// Replaces the one occurrence of `from` in a file.
inline void ReplaceInFile(const std::string& path, std::string_view from, std::string_view to) {
  std::string text = ReadFile(path);
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << path << " has no " << from;
  ASSERT_EQ(text.find(from, at + 1), std::string::npos) << path << " has several " << from;
  WriteFile(path, text.replace(at, from.size(), to));
}

// A safetensors file of this header text, with this many bytes of data behind it.
inline std::string Safetensors(std::string_view header, size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i));
  file += header;
  return file + std::string(data_bytes, '\0');
}

// An error whose message mentions each of these.
inline ::testing::AssertionResult Mentions(const Error& error,
                                           std::initializer_list<std::string_view> parts) {
  const std::string message = error.Message();
  for (std::string_view part : parts) {
    if (message.find(part) == std::string::npos) {
      return ::testing::AssertionFailure() << "no \"" << part << "\" in: " << message;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace segue::testing
