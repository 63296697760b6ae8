#include "bench/temporary_directory.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace segue::bench {

Result<TemporaryDirectory> TemporaryDirectory::Create() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  // mkdtemp puts other characters where the X are.
  std::string name = (parent / ("segue-bench-" + std::string(6, 'X'))).string();
  if (!error && mkdtemp(name.data()) != nullptr) return TemporaryDirectory(std::move(name));
  return Error{.code = ErrorCode::kIo,
               .operation = "make a temporary directory",
               .argument = name,
               .got = error ? error.message() : std::strerror(errno),
               .wanted = "a directory that may be written to, TMPDIR or /tmp"};
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;  // what stays behind does no harm
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace segue::bench
