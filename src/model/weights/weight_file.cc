#include "model/weights/weight_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "model/weights/weight_lane.h"

namespace segue::model {
namespace {

// Reads until `bytes` are there, the file ends or the system refuses; 0 or errno.
int ReadAll(int descriptor, int64_t offset, int64_t bytes, uint8_t* to, int64_t* got) {
  while (*got < bytes) {
    const ssize_t count =
        ::pread(descriptor, to + *got, static_cast<size_t>(bytes - *got), offset + *got);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return 0;
    *got += count;
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<WeightFile>> WeightFile::Open(const TensorFile& file, bool past_page_cache) {
  const char* path = file.path().c_str();
  const int cached = ::open(path, O_RDONLY | O_CLOEXEC);
  if (cached < 0) {
    const int reason = errno;
    return Error{.code = reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                 .operation = "load weights",
                 .argument = file.path(),
                 .got = std::generic_category().message(reason),
                 .wanted = "a readable file"};
  }
  int direct = -1;
#ifdef O_DIRECT
  if (past_page_cache) direct = ::open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
#endif
  return std::unique_ptr<WeightFile>(new WeightFile(file, cached, direct));
}

WeightFile::~WeightFile() {
  ::close(cached_);
  if (direct_ >= 0) ::close(direct_);
}

// Whether most of it is in memory. The system answers for the owner of a file and for those who may
// write it; to others it says yes.
bool WeightFile::IsCached(int64_t begin, int64_t end) const {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  end = std::min(end, file_.size_bytes());
  begin = begin / page * page;
  if (begin >= end) return true;
  std::vector<unsigned char> pages(static_cast<size_t>((end - begin + page - 1) / page));
  void* address = const_cast<uint8_t*>(file_.data()) + begin;
  if (::mincore(address, static_cast<size_t>(end - begin), pages.data()) != 0) return true;
  const auto cached =
      std::count_if(pages.begin(), pages.end(), [](unsigned char flags) { return flags & 1; });
  return 2 * cached >= static_cast<int64_t>(pages.size());
}

bool WeightFile::IsMostlyCached() const {
  // Of 64 KiB each: 4 MiB of pages to look up, whatever the size of the file.
  constexpr int64_t kSamples = 64;
  constexpr int64_t kSampleBytes = 64 << 10;
  const int64_t size = file_.size_bytes();
  int64_t cached = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const int64_t begin = size / kSamples * i;
    cached += IsCached(begin, begin + kSampleBytes) ? 1 : 0;
  }
  return 2 * cached > kSamples;
}

WeightFile::Got WeightFile::Read(int64_t begin, int64_t end, uint8_t* to) const {
  Got got;
  if (direct_ >= 0 && !IsCached(begin, end)) {
    const int64_t whole = (end - begin + kReadAlignment - 1) / kReadAlignment * kReadAlignment;
    direct_turns_.acquire();
    const int error = ReadAll(direct_, begin, whole, to, &got.bytes);
    direct_turns_.release();
    got.bytes = std::min(got.bytes, end - begin);
    got.direct = error == 0 && got.bytes > 0;
    if (got.bytes == end - begin) return got;
  }
  // Also what a file system that takes no direct reads (EINVAL) left.
  got.error = ReadAll(cached_, begin, end - begin, to, &got.bytes);
  return got;
}

}  // namespace segue::model
