// Files that appear whole or not at all, and never in place of another by accident.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "segue/status.h"

namespace segue::cli {

enum class Existing : uint8_t { kRefuse, kReplace };

// Whether a file may be written here, tried before any compute: the directory exists, a temporary
// file can be made in it, the name is free (or a regular file that may be replaced), and the file
// system has `bytes` left.
Status CheckWritable(const std::string& path, int64_t bytes, Existing existing);

// Writes a file under a temporary name in the same directory, flushes it to the disk and gives it
// its name in one atomic step. When anything fails (a full disk, say) nothing is left behind. With
// kRefuse, if another file has appeared under the name since CheckWritable, neither is lost: the
// new one gets the first free name. Returns the name.
Result<std::string> WriteWholeFile(const std::string& path, const std::vector<uint8_t>& bytes,
                                   Existing existing);

// The pictures' file names. A pattern may hold {seed} and {index} (1 for the first picture).
// Without either, several pictures are numbered: a.png becomes a-1.png, a-2.png, ...
struct OutputPattern {
  std::string text;  // ends in ".png"
  int count = 1;     // pictures, at least 1

  // Errors: another placeholder, a name that does not end in .png, an empty name.
  Status Check() const;
  // Precondition: Check() passed.
  std::string Path(int index, uint64_t seed) const;
};

// `path` itself if nothing is there, else the first free of stem-1.png, stem-2.png, ...
std::string FirstFreeName(const std::string& path);

// The whole of a file, "-" for stdin. Errors: what the system refuses, more than `max_bytes`,
// kCancelled after an interrupt.
Result<std::string> ReadWholeFile(const std::string& path, size_t max_bytes);

}  // namespace segue::cli
