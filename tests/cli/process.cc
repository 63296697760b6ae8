#include "cli/process.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace segue {
namespace {

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

Pipe MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  return {ends[0], ends[1]};
}

Pipe MakeTerminal(int columns) {
  Pipe terminal;
  winsize size = {};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = 25;
  if (openpty(&terminal.read_end, &terminal.write_end, nullptr, nullptr, &size) != 0) {
    throw std::runtime_error("openpty");
  }
  fcntl(terminal.read_end, F_SETFD, FD_CLOEXEC);
  fcntl(terminal.write_end, F_SETFD, FD_CLOEXEC);
  return terminal;
}

// In the child, between fork and exec.
void Become(const Child& child, int in, int out, int err) {
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  if (!child.directory.empty() && chdir(child.directory.c_str()) != 0) _exit(126);
  if (child.max_file_bytes >= 0) {
    const rlimit limit = {static_cast<rlim_t>(child.max_file_bytes),
                          static_cast<rlim_t>(child.max_file_bytes)};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  std::signal(SIGINT, child.ignore_sigint ? SIG_IGN : SIG_DFL);
  setenv("TERM", "xterm", 1);
  std::vector<char*> arguments;
  for (const std::string& text : child.command)
    arguments.push_back(const_cast<char*>(text.c_str()));
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(127);
}

// Appends what is there to read; false at the end. A terminal whose other side is closed says EIO.
bool Drain(int descriptor, std::string* text) {
  char buffer[4096];
  const ssize_t count = read(descriptor, buffer, sizeof(buffer));
  if (count <= 0) return false;
  text->append(buffer, static_cast<size_t>(count));
  return true;
}

// Whether the process handles or ignores a signal: proc(5), the masks SigIgn and SigCgt.
bool IsPrepared(pid_t process, int signal) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("SigIgn:") && !line.starts_with("SigCgt:")) continue;
    const unsigned long long mask = std::stoull(line.substr(7), nullptr, 16);
    if ((mask >> (signal - 1) & 1U) != 0) return true;
  }
  return false;
}

// Reads both streams to their end, sends the signal when it is due. False: past the deadline.
bool Collect(const Child& child, pid_t process, pollfd (&streams)[2], Outcome* outcome) {
  const auto end = std::chrono::steady_clock::now() + child.deadline;
  bool to_signal = child.signal != 0;
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    if (std::chrono::steady_clock::now() > end) return false;
    poll(streams, 2, 50);
    std::string* const texts[] = {&outcome->out, &outcome->err};
    for (int i = 0; i < 2; ++i) {
      if (streams[i].revents != 0 && !Drain(streams[i].fd, texts[i])) streams[i].fd = -1;
    }
    if (to_signal && outcome->err.find(child.signal_when) != std::string::npos &&
        IsPrepared(process, child.signal)) {
      kill(process, child.signal);
      to_signal = child.signal_again;
    }
  }
  return true;
}

}  // namespace

Outcome RunChild(const Child& child) {
  const Pipe in = MakePipe();
  const Pipe out = MakePipe();
  const Pipe err = child.terminal_columns > 0 ? MakeTerminal(child.terminal_columns) : MakePipe();
  const int stdout_target = child.stdout_file.empty() ? out.write_end
                                                      : open(child.stdout_file.c_str(),
                                                             O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  const pid_t process = fork();
  if (process == 0) Become(child, in.read_end, stdout_target, err.write_end);
  close(in.read_end);
  close(out.write_end);
  close(err.write_end);
  if (!child.stdout_file.empty()) close(stdout_target);
  // Small texts only: a pipe holds 64 KiB before anybody reads it.
  std::signal(SIGPIPE, SIG_IGN);
  if (!child.stdin_text.empty() &&
      write(in.write_end, child.stdin_text.data(), child.stdin_text.size()) < 0) {
    // The child may have ended without reading; its status tells.
  }
  // A child that is to be interrupted while it reads stdin finds it open and empty.
  if (child.signal == 0 || !child.stdin_text.empty()) close(in.write_end);
  Outcome outcome;
  pollfd streams[2] = {{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}};
  const bool in_time = Collect(child, process, streams, &outcome);
  if (!in_time) kill(process, SIGKILL);
  int status = 0;
  waitpid(process, &status, 0);
  if (child.signal != 0 && child.stdin_text.empty()) close(in.write_end);
  close(out.read_end);
  close(err.read_end);
  if (in_time) outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return outcome;
}

ScratchDirectory::ScratchDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "segue-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = name;
}

ScratchDirectory::~ScratchDirectory() { std::filesystem::remove_all(path_); }

std::vector<std::string> ScratchDirectory::Names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace segue
