#include "kernels/registry.h"

#include <algorithm>

namespace segue::kernels {

void KernelLog::Count(const char* op, const char* kernel, std::vector<std::string> passed_over) {
  const std::lock_guard lock(mutex_);
  std::vector<Entry>& entries = entries_[op];
  auto entry = std::find_if(entries.begin(), entries.end(),
                            [kernel](const Entry& e) { return e.kernel == kernel; });
  if (entry == entries.end()) entry = entries.insert(entries.end(), {.kernel = kernel});
  ++entry->calls;
  entry->passed_over = std::move(passed_over);
}

std::map<std::string, std::vector<KernelLog::Entry>> KernelLog::Snapshot() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

Error NoKernelError(const char* op, const std::vector<std::string>& reasons) {
  std::string got;
  for (const std::string& reason : reasons) got += (got.empty() ? "" : "; ") + reason;
  return {.code = ErrorCode::kUnsupported,
          .operation = op,
          .argument = "",
          .got = got,
          .wanted = "an implementation that accepts these parameters"};
}

}  // namespace segue::kernels
