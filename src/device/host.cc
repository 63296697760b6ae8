#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "device/arena.h"
#include "device/device.h"

namespace segue {
namespace {

class Host : public DeviceMemory {
 public:
  void* Allocate(int64_t bytes) override {
    if (bytes < 0) return nullptr;
    const auto alignment = static_cast<size_t>(Arena::kAlignment);
    const size_t rounded = (static_cast<size_t>(bytes) + alignment - 1) / alignment * alignment;
    return std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  }
  void Free(void* pointer) override { std::free(pointer); }
};

// A line of /proc/meminfo, e.g. "MemAvailable:   20000000 kB", in bytes; 0 when absent.
int64_t MemInfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::string unit;
  int64_t kib = 0;
  while (file >> name >> kib) {
    std::getline(file, unit);
    if (name == key + ":") return kib * 1024;
  }
  return 0;
}

}  // namespace

const char* DeviceKindName(DeviceKind kind) { return kind == DeviceKind::kCpu ? "cpu" : "cuda"; }

DeviceMemory& HostMemory() {
  static Host host;
  return host;
}

DeviceInfo HostInfo() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  return {.kind = DeviceKind::kCpu,
          .index = 0,
          .name = "host",
          .total_bytes = pages * sysconf(_SC_PAGE_SIZE),
          .free_bytes = MemInfo("MemAvailable")};
}

}  // namespace segue
