#include "cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "cli/console.h"
#include "cli/interrupt.h"

namespace segue::cli {
namespace {

constexpr char kExtension[] = ".png";
constexpr size_t kExtensionBytes = sizeof(kExtension) - 1;

Error IoError(const std::string& operation, const std::string& path, int error_number) {
  return {.code = error_number == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
          .operation = operation,
          .argument = path,
          .got = std::strerror(error_number)};
}

std::string DirectoryOf(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path().string();
  return directory.empty() ? "." : directory;
}

// A new file with a name of its own beside `path`. Its destructor removes what is still there.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path) {
    const std::string stem = DirectoryOf(path) + "/.segue-" + std::to_string(getpid()) + "-";
    // Names left by an ended process of the same id are stepped over.
    for (int attempt = 0; attempt < 100 && descriptor_ < 0; ++attempt) {
      path_ = stem + std::to_string(attempt) + ".tmp";
      descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      error_ = descriptor_ < 0 ? errno : 0;
      if (error_ != 0 && error_ != EEXIST) break;
    }
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (error_ == 0) unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int error() const { return error_; }
  const std::string& path() const { return path_; }

  // The error number, 0 for success.
  int Write(const std::vector<uint8_t>& bytes) {
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t written = write(descriptor_, bytes.data() + done, bytes.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return errno;
      if (written == 0) return EIO;
      done += static_cast<size_t>(written);
    }
    // Some file systems (NFS, quotas) report a full disk only here.
    if (fsync(descriptor_) != 0 && errno != EINVAL && errno != ENOTSUP) return errno;
    const int closed = close(descriptor_);
    descriptor_ = -1;
    return closed == 0 ? 0 : errno;
  }

  // Gives the file its final name. The error number, 0 for success.
  int Rename(const std::string& path, Existing existing) {
    if (existing == Existing::kReplace) return rename(path_.c_str(), path.c_str()) == 0 ? 0 : errno;
    if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return errno;
    // A file system without that call; a hard link refuses an existing name just as well. The
    // destructor removes the temporary name.
    return link(path_.c_str(), path.c_str()) == 0 ? 0 : errno;
  }

 private:
  std::string path_;
  int descriptor_ = -1;
  int error_ = 0;
};

Error Taken(const std::string& path) {
  return {.code = ErrorCode::kIo,
          .operation = "write",
          .argument = path,
          .got = "a name that exists",
          .wanted = "a free name such as " + FirstFreeName(path) + ", or --overwrite"};
}

bool Exists(const std::string& path) {
  struct stat info = {};
  return lstat(path.c_str(), &info) == 0;
}

Status CheckName(const std::string& path, Existing existing) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    return IoError("write", path, errno);
  }
  if (existing == Existing::kRefuse) return Taken(path);
  if (S_ISREG(info.st_mode)) return {};
  return Error{.code = ErrorCode::kIo,
               .operation = "overwrite",
               .argument = path,
               .got = S_ISDIR(info.st_mode) ? "a directory" : "something not a regular file",
               .wanted = "a regular file or a free name"};
}

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string Numbered(const std::string& path, int number) {
  return path.substr(0, path.size() - kExtensionBytes) + "-" + std::to_string(number) + kExtension;
}

}  // namespace

Status CheckWritable(const std::string& path, int64_t bytes, Existing existing) {
  const std::string directory = DirectoryOf(path);
  struct stat info = {};
  if (stat(directory.c_str(), &info) != 0) return IoError("write into", directory, errno);
  if (!S_ISDIR(info.st_mode)) return IoError("write into", directory, ENOTDIR);
  SEGUE_RETURN_IF_ERROR(CheckName(path, existing));
  const TemporaryFile probe(path);
  if (probe.error() != 0) return IoError("write into", directory, probe.error());
  struct statvfs space = {};
  if (statvfs(directory.c_str(), &space) != 0) return {};  // unknown; writing will tell
  const double free_bytes =
      static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize);
  if (space.f_blocks > 0 && free_bytes < static_cast<double>(bytes)) {
    return Error{.code = ErrorCode::kIo,
                 .operation = "write into",
                 .argument = directory,
                 .got = FormatBytes(static_cast<int64_t>(free_bytes)) + " free",
                 .wanted = FormatBytes(bytes)};
  }
  return {};
}

Result<std::string> WriteWholeFile(const std::string& path, const std::vector<uint8_t>& bytes,
                                   Existing existing) {
  TemporaryFile file(path);
  if (file.error() != 0) return IoError("write into", DirectoryOf(path), file.error());
  const RemoveOnInterrupt guard(file.path());
  if (const int error = file.Write(bytes); error != 0) return IoError("write", path, error);
  std::string name = path;
  int error = file.Rename(name, existing);
  while (error == EEXIST) {
    name = FirstFreeName(path);
    error = file.Rename(name, existing);
  }
  if (error != 0) return IoError("write", name, error);
  return name;
}

Status OutputPattern::Check() const {
  const std::string_view name = std::string_view(text).substr(text.rfind('/') + 1);
  if (!name.ends_with(kExtension) || name.size() == kExtensionBytes) {
    return Usage(
        "--output", text.empty() ? "''" : text,
        "a file name that ends in .png, such as " +
            (name.empty() || name == kExtension ? "picture.png" : std::string(name) + ".png"));
  }
  std::string rest = Replace(Replace(text, "{seed}", ""), "{index}", "");
  if (rest.find_first_of("{}") != std::string::npos) {
    return Usage("--output", text, "no braces but those of {seed} and {index}");
  }
  return {};
}

std::string OutputPattern::Path(int index, uint64_t seed) const {
  std::string path = Replace(text, "{seed}", std::to_string(seed));
  path = Replace(path, "{index}", std::to_string(index + 1));
  return path == text && count > 1 ? Numbered(path, index + 1) : path;
}

std::string FirstFreeName(const std::string& path) {
  std::string name = path;
  for (int number = 1; Exists(name); ++number) name = Numbered(path, number);
  return name;
}

Result<std::string> ReadWholeFile(const std::string& path, size_t max_bytes) {
  const bool standard = path == "-";
  const std::string shown = standard ? "stdin" : path;
  const int descriptor = standard ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return IoError("read", shown, errno);
  std::string text;
  int error = 0;
  char buffer[1 << 14];
  while (text.size() <= max_bytes) {
    const ssize_t count = read(descriptor, buffer, sizeof(buffer));
    if (count == 0) break;
    if (count > 0) {
      text.append(buffer, static_cast<size_t>(count));
    } else if (errno != EINTR || InterruptSignal() != 0) {
      error = errno;
      break;
    }
  }
  if (!standard) close(descriptor);
  if (InterruptSignal() != 0) {
    return Error{.code = ErrorCode::kCancelled, .operation = "read", .argument = shown};
  }
  if (error != 0) return IoError("read", shown, error);
  if (text.size() > max_bytes) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = "read",
                 .argument = shown,
                 .got = "more than " + std::to_string(max_bytes) + " bytes",
                 .wanted = "a prompt of at most that"};
  }
  return text;
}

}  // namespace segue::cli
