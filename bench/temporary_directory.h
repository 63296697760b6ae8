// A directory that is there as long as its object is.
#pragma once

#include <string>
#include <utility>

#include "segue/status.h"

namespace segue::bench {

class TemporaryDirectory {
 public:
  // Below the system's directory for temporary files. Error (kIo): none could be made there.
  static Result<TemporaryDirectory> Create();
  ~TemporaryDirectory();  // removes it with all that it holds
  TemporaryDirectory(TemporaryDirectory&& other) noexcept
      : path_(std::exchange(other.path_, std::string())) {}
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: moved from
};

}  // namespace segue::bench
