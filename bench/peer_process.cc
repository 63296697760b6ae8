#include "bench/peer_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
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

Result<std::unique_ptr<PeerProcess>> PeerProcess::Start(const std::vector<std::string>& arguments) {
  std::unique_ptr<PeerProcess> peer(new PeerProcess);
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

Result<std::string> PeerProcess::Run() {
  // A child that died would raise SIGPIPE here; the write's error says it better.
  struct sigaction ignore{};
  struct sigaction previous{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &previous);
  const bool sent = write(to_child_, "\n", 1) == 1;
  const int error = errno;
  sigaction(SIGPIPE, &previous, nullptr);
  if (!sent) return PeerError(name_, std::strerror(error), "a running peer");
  return ReadLine();
}

Result<std::string> PeerProcess::ReadLine() {
  std::array<char, 4096> chunk{};
  while (true) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    const ssize_t bytes = read(from_child_, chunk.data(), chunk.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return PeerError(name_, "the end of its output", "a line of JSON");
    buffer_.append(chunk.data(), static_cast<size_t>(bytes));
  }
}

}  // namespace segue::bench
