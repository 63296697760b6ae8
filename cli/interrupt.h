// Ctrl-C and its relatives (SIGINT, SIGTERM, SIGHUP).
//
// The first signal only leaves a note, which the denoise loop reads between two steps. The second
// ends the process at once; a temporary file that is being written is removed even then.
#pragma once

#include <string>

namespace segue::cli {

// From here on signals are noted. One that the parent had set to be ignored (nohup) stays ignored.
void NoteInterrupts();

// The signal that arrived, 0 if none did.
int InterruptSignal();

// While it lives, the second signal removes this file before it ends the process. At most one
// object lives at a time; paths that do not fit PATH_MAX are left alone.
class RemoveOnInterrupt {
 public:
  explicit RemoveOnInterrupt(const std::string& path);
  ~RemoveOnInterrupt();
  RemoveOnInterrupt(const RemoveOnInterrupt&) = delete;
  RemoveOnInterrupt& operator=(const RemoveOnInterrupt&) = delete;
};

}  // namespace segue::cli
