#include "cli/interrupt.h"

#include <limits.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>

namespace segue::cli {
namespace {

std::atomic<int> noted_signal{0};
std::atomic<bool> has_file{false};
char file_to_remove[PATH_MAX];

static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler may touch lock-free atomics only");

void OnSignal(int signal) {
  int none = 0;
  if (noted_signal.compare_exchange_strong(none, signal)) return;
  if (has_file.load()) unlink(file_to_remove);
  _exit(128 + signal);
}

}  // namespace

void NoteInterrupts() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = OnSignal;
    sigemptyset(&action.sa_mask);
    // No SA_RESTART: a read of a prompt from stdin must end too.
    sigaction(signal, &action, nullptr);
  }
}

int InterruptSignal() { return noted_signal.load(); }

RemoveOnInterrupt::RemoveOnInterrupt(const std::string& path) {
  if (path.size() >= sizeof(file_to_remove)) return;
  std::memcpy(file_to_remove, path.c_str(), path.size() + 1);
  has_file.store(true);
}

RemoveOnInterrupt::~RemoveOnInterrupt() { has_file.store(false); }

}  // namespace segue::cli
