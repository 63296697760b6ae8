// A peer that lives in another program, kept warm between runs.
//
// Protocol, a line each way: the child prints one JSON line when it is ready (load time, versions);
// then each line it reads makes one run, answered by one JSON line with the run's times.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "segue/status.h"

namespace segue::bench {

class PeerProcess {
 public:
  // Starts `arguments` (arguments[0] is looked up in PATH) and waits for its first line.
  static Result<std::unique_ptr<PeerProcess>> Start(const std::vector<std::string>& arguments);
  // Closes the child's input, which ends it, and waits for it.
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // The child's first line.
  const std::string& greeting() const { return greeting_; }
  // One run: sends a line and returns the answer.
  Result<std::string> Run();

 private:
  PeerProcess() = default;
  Result<std::string> ReadLine();

  int pid_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
  std::string name_;
  std::string buffer_;
  std::string greeting_;
};

}  // namespace segue::bench
