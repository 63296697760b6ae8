// A peer that lives in another program, kept warm between runs.
//
// Protocol, a line each way: the child prints one JSON line when it is ready (load time, versions);
// then each line it reads is a question, answered by one JSON line.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "segue/status.h"

namespace segue::bench {

class PeerProcess {
 public:
  // Starts `arguments` (arguments[0] is looked up in PATH) and waits for its first line. No line
  // may take longer than `limit_s`; a child that takes longer is killed. Errors: it does not start,
  // ends, or exceeds the limit.
  static Result<std::unique_ptr<PeerProcess>> Start(const std::vector<std::string>& arguments,
                                                    double limit_s = kLimitSeconds);
  // Closes the child's input, which ends it, and waits for it.
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // The child's first line.
  const std::string& greeting() const { return greeting_; }
  // Sends a line and returns the answer. Errors as Start's.
  Result<std::string> Ask(const std::string& question);

 private:
  // A picture on a slow processor, or a large network that is compiled.
  static constexpr double kLimitSeconds = 600;

  PeerProcess() = default;
  Result<std::string> ReadLine();
  void Kill();

  int pid_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
  double limit_s_ = kLimitSeconds;
  std::string name_;
  std::string buffer_;
  std::string greeting_;
};

}  // namespace segue::bench
