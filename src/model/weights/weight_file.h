// Reading weights from disk, past the page cache where it does not hold them already.
#pragma once

#include <cstdint>
#include <memory>
#include <semaphore>
#include <string>

#include "model/weights/tensor_file.h"
#include "segue/status.h"

namespace segue::model {

// A file opened for reading by offset; any number of threads. The page cache gives what it holds at
// the speed of memory, but filling it costs pages and a copy and keeps a disk from its full speed:
// what it does not hold is read into the caller's memory directly, where the file system can
// (O_DIRECT).
class WeightFile {
 public:
  // Reads past the page cache at a time; others wait. A disk is at its best with a few large ones
  // side by side: 16 took 1.15 times as long as one on a disk of 2 GB/s.
  static constexpr int kDirectReads = 4;

  // `past_page_cache`: see above; false reads everything through the cache, which is then filled
  // for the next program. Errors: what the system refuses (kNotFound, kIo).
  static Result<std::unique_ptr<WeightFile>> Open(const TensorFile& file, bool past_page_cache);
  ~WeightFile();
  WeightFile(const WeightFile&) = delete;
  WeightFile& operator=(const WeightFile&) = delete;

  struct Got {
    int64_t bytes = 0;    // read; less than asked for only at the end of the file
    bool direct = false;  // past the page cache
    int error = 0;        // errno; 0 where the system refused nothing
  };
  // Reads [begin, end) to `to`, which has room for the whole of kReadAlignment's multiples.
  // Precondition: `begin` and `to` are multiples of kReadAlignment.
  Got Read(int64_t begin, int64_t end, uint8_t* to) const;

  // Whether the page cache seems to hold most of the file, by samples all over it.
  bool IsMostlyCached() const;

 private:
  WeightFile(const TensorFile& file, int cached, int direct)
      : file_(file), cached_(cached), direct_(direct) {}
  bool IsCached(int64_t begin, int64_t end) const;

  const TensorFile& file_;
  int cached_;
  int direct_;  // -1 where there is no such way
  mutable std::counting_semaphore<kDirectReads> direct_turns_{kDirectReads};
};

}  // namespace segue::model
