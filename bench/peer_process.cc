#include "bench/peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

namespace segue::bench {
namespace {

Error PeerError(const std::string& name, const std::string& got, const std::string& wanted) {
  return {.code = ErrorCode::kIo,
          .operation = "run the peer",
          .argument = name,
          .got = got,
          .wanted = wanted};
}

}  // namespace

Result<std::unique_ptr<PeerProcess>> PeerProcess::Start(const std::vector<std::string>& arguments,
                                                        double limit_s) {
  std::unique_ptr<PeerProcess> peer(new PeerProcess);
  peer->limit_s_ = limit_s;
  peer->name_ = arguments[0];
  std::array<int, 2> input{};   // parent -> child
  std::array<int, 2> output{};  // child -> parent
  if (pipe2(input.data(), O_CLOEXEC) != 0) {
    return PeerError(peer->name_, std::strerror(errno), "a pipe");
  }
  peer->to_child_ = input[1];
  if (pipe2(output.data(), O_CLOEXEC) != 0) {
    close(input[0]);
    return PeerError(peer->name_, std::strerror(errno), "a pipe");
  }
  peer->from_child_ = output[0];

  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  const int status = posix_spawnp(&peer->pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(input[0]);
  close(output[1]);
  if (status != 0) {
    peer->pid_ = -1;
    return PeerError(peer->name_, std::strerror(status), "a program that starts");
  }
  SEGUE_ASSIGN_OR_RETURN(peer->greeting_, peer->ReadLine());
  return peer;
}

PeerProcess::~PeerProcess() {
  if (to_child_ >= 0) close(to_child_);
  if (from_child_ >= 0) close(from_child_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

void PeerProcess::Kill() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

Result<std::string> PeerProcess::Ask(const std::string& question) {
  // A child that died would raise SIGPIPE here; the write's error says it better.
  struct sigaction ignore{};
  struct sigaction previous{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &previous);
  const std::string line = question + "\n";  // far shorter than what a pipe takes at once
  const bool sent = write(to_child_, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  const int error = errno;
  sigaction(SIGPIPE, &previous, nullptr);
  if (!sent) return PeerError(name_, std::strerror(error), "a running peer");
  return ReadLine();
}

Result<std::string> PeerProcess::ReadLine() {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(limit_s_));
  std::array<char, 4096> chunk{};
  while (true) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wait = {.fd = from_child_, .events = POLLIN, .revents = 0};
    const int ready = left > 0 ? poll(&wait, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      Kill();
      return PeerError(name_, "no answer", "one in " + std::to_string(limit_s_) + " s");
    }
    const ssize_t bytes = read(from_child_, chunk.data(), chunk.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return PeerError(name_, "the end of its output", "a line of JSON");
    buffer_.append(chunk.data(), static_cast<size_t>(bytes));
  }
}

}  // namespace segue::bench
