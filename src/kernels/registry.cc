#include "kernels/registry.h"

#include <algorithm>
#include <set>

namespace segue::kernels {

void KernelLog::Count(const char* op, const char* kernel, Span<const Reason> passed_over) {
  const std::lock_guard lock(mutex_);
  auto record = std::find_if(records_.begin(), records_.end(), [op, kernel](const Record& r) {
    return r.op == op && r.kernel == kernel;
  });
  if (record == records_.end()) {
    record = records_.insert(records_.end(), {.op = op, .kernel = kernel, .calls = 0});
  }
  ++record->calls;
  record->passed_over.assign(passed_over.begin(), passed_over.end());
}

std::vector<KernelLog::Tally> KernelLog::Tallies() const {
  const std::lock_guard lock(mutex_);
  std::vector<Tally> tallies;
  tallies.reserve(records_.size());
  for (const Record& record : records_) tallies.push_back({record.op, record.kernel, record.calls});
  return tallies;
}

std::vector<KernelLog::Tally> KernelLog::Since(Span<const Tally> before) const {
  std::vector<Tally> tallies = Tallies();
  // Records are appended and never moved.
  for (size_t i = 0; i < before.size(); ++i) tallies[i].calls -= before[i].calls;
  std::erase_if(tallies, [](const Tally& tally) { return tally.calls == 0; });
  return tallies;
}

void KernelLog::Repeat(Span<const Tally> calls) {
  const std::lock_guard lock(mutex_);
  for (Record& record : records_) {
    for (const Tally& tally : calls) {
      if (record.op == tally.op && record.kernel == tally.kernel) record.calls += tally.calls;
    }
  }
}

std::map<std::string, std::vector<KernelLog::Entry>> KernelLog::Snapshot() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::vector<Entry>> entries;
  for (const Record& record : records_) {
    std::vector<Entry>& of_op = entries[record.op];
    auto entry = std::find_if(of_op.begin(), of_op.end(),
                              [&](const Entry& e) { return e.kernel == record.kernel; });
    if (entry == of_op.end()) entry = of_op.insert(of_op.end(), {.kernel = record.kernel});
    entry->calls += record.calls;
    entry->passed_over.clear();
    for (const Reason& reason : record.passed_over) {
      entry->passed_over.push_back(std::string(reason.kernel) + ": " + reason.text);
    }
  }
  return entries;
}

const char* Interned(std::string_view text) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> texts;
  const std::lock_guard lock(mutex);
  return texts.emplace(text).first->c_str();
}

Error NoKernelError(const char* op, Span<const KernelLog::Reason> reasons) {
  std::string got;
  for (const KernelLog::Reason& reason : reasons) {
    got += (got.empty() ? "" : "; ") + std::string(reason.kernel) + ": " + reason.text;
  }
  return {.code = ErrorCode::kUnsupported,
          .operation = op,
          .argument = "",
          .got = got,
          .wanted = "an implementation that accepts these parameters"};
}

}  // namespace segue::kernels
