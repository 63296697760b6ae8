#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "kernels/product_choice.h"

namespace segue::kernels {
namespace {

// A file of choices has some hundred lines of 200 bytes; anything much larger is something else.
constexpr size_t kMaxBytes = size_t{4} << 20;

Error IoError(const char* operation, const std::string& path, int error) {
  return {.code = ErrorCode::kIo,
          .operation = operation,
          .argument = path,
          .got = std::strerror(error),
          .wanted = ""};
}

class File {
 public:
  File(const std::string& path, int flags) : descriptor_(open(path.c_str(), flags, 0644)) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

// 0 or errno.
int WriteAll(int descriptor, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(descriptor, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return errno;
    if (wrote > 0) done += static_cast<size_t>(wrote);
  }
  return fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
}

}  // namespace

Result<std::string> ReadProductChoices(const std::string& path) {
  constexpr char kOp[] = "read product choices";
  const File file(path, O_RDONLY | O_CLOEXEC);
  if (file.descriptor() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::string();
    return IoError(kOp, path, errno);
  }
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t got = read(file.descriptor(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return IoError(kOp, path, errno);
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kMaxBytes) return IoError(kOp, path, EFBIG);
  }
}

Status WriteProductChoices(const std::string& path, const std::string& text) {
  constexpr char kOp[] = "write product choices";
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  std::error_code made;
  if (!directory.empty()) std::filesystem::create_directories(directory, made);
  if (made) return IoError(kOp, directory.string(), made.value());
  // The process's number: two that start together do not write into one file.
  const std::string partial = path + "." + std::to_string(getpid()) + ".part";
  int error = 0;
  {
    const File file(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
    if (file.descriptor() < 0) return IoError(kOp, partial, errno);
    error = WriteAll(file.descriptor(), text);
  }
  if (error == 0 && std::rename(partial.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  unlink(partial.c_str());
  return IoError(kOp, path, error);
}

}  // namespace segue::kernels
