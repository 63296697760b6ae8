// Runs a program as a child process, with a deadline, and collects what it says.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace segue {

struct Child {
  std::vector<std::string> command;  // program, then its arguments
  std::string directory;             // to run in; empty: here
  std::string stdin_text;
  // Send `signal` once the child has a handler for it (or ignores it) and stderr holds
  // `signal_when`; with `signal_again` every 50 ms until the child has ended.
  int signal = 0;
  bool signal_again = false;
  std::string signal_when;
  long long max_file_bytes = -1;  // RLIMIT_FSIZE, -1: no limit
  int terminal_columns = 0;       // stderr is a terminal this wide; 0: a pipe
  std::string stdout_file;        // instead of a pipe
  bool ignore_sigint = false;     // as nohup and shells' background jobs do
  std::chrono::seconds deadline{60};
};

struct Outcome {
  int status = -1;  // exit status, or 1000 + the signal that ended it; -1: past the deadline
  std::string out;
  std::string err;
};

Outcome RunChild(const Child& child);

// A directory of its own, removed with all it holds.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Names of all entries, hidden ones too, sorted.
  std::vector<std::string> Names() const;

 private:
  std::string path_;
};

std::string ReadText(const std::string& path);
void WriteText(const std::string& path, const std::string& text);

}  // namespace segue
