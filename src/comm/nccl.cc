#include "comm/nccl.h"

#include <dlfcn.h>

#include <cstdlib>

namespace segue::comm {
namespace {

constexpr char kSoname[] = "libnccl.so.2";

// NCCL's C interface, of which these have not changed since 2.10.
using NcclComm = void*;
using NcclResult = int;
constexpr NcclResult kSuccess = 0;
constexpr int kFloat32 = 7;
constexpr int kBFloat16 = 9;
constexpr int kSum = 0;

struct Library {
  NcclResult (*comm_init_all)(NcclComm*, int, const int*) = nullptr;
  NcclResult (*comm_destroy)(NcclComm) = nullptr;
  NcclResult (*comm_abort)(NcclComm) = nullptr;
  NcclResult (*all_reduce)(const void*, void*, size_t, int, int, NcclComm, void*) = nullptr;
  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;
  NcclResult (*get_version)(int*) = nullptr;
  const char* (*get_error_string)(NcclResult) = nullptr;
  std::string missing;  // why it cannot be used; empty: it can

  template <typename Function>
  void Find(void* handle, const char* name, Function** function) {
    *function = reinterpret_cast<Function*>(dlsym(handle, name));
    if (*function == nullptr) missing = std::string("a library without ") + name;
  }
};

Library Open() {
  // On hosts whose GPUs others share, multicast can put them out of service (DESIGN.md). Read by
  // NCCL when its first communicator is made.
  setenv("NCCL_NVLS_ENABLE", "0", 1);  // NOLINT(concurrency-mt-unsafe): once, before NCCL
  const char* chosen = std::getenv("SEGUE_NCCL");  // NOLINT(concurrency-mt-unsafe)
  const bool by_name = chosen != nullptr && *chosen != '\0';
  const char* path = by_name ? chosen : kSoname;
  Library library;
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = dlerror();  // NOLINT(concurrency-mt-unsafe)
    library.missing = std::string(by_name ? "SEGUE_NCCL=" : "SEGUE_NCCL is not set; ") + path +
                      ": " + (error == nullptr ? "not found" : error);
    return library;
  }
  library.Find(handle, "ncclCommInitAll", &library.comm_init_all);
  library.Find(handle, "ncclCommDestroy", &library.comm_destroy);
  library.Find(handle, "ncclCommAbort", &library.comm_abort);
  library.Find(handle, "ncclAllReduce", &library.all_reduce);
  library.Find(handle, "ncclGroupStart", &library.group_start);
  library.Find(handle, "ncclGroupEnd", &library.group_end);
  library.Find(handle, "ncclGetVersion", &library.get_version);
  library.Find(handle, "ncclGetErrorString", &library.get_error_string);
  return library;
}

// Opened once and never closed: it keeps threads.
const Library& TheLibrary() {
  static const Library library = Open();
  return library;
}

Status Check(const char* call, NcclResult result) {
  if (result == kSuccess) return {};
  return Error{.code = ErrorCode::kUnsupported,
               .operation = "sum with NCCL",
               .argument = call,
               .got = TheLibrary().get_error_string(result),
               .wanted = "GPUs that NCCL can join"};
}

Status MakeCommunicators(const std::vector<int>& devices, std::vector<void*>* communicators) {
  const Library& library = TheLibrary();
  if (!library.missing.empty()) {
    return Error{.code = ErrorCode::kUnsupported,
                 .operation = "load NCCL",
                 .argument = "",
                 .got = library.missing,
                 .wanted = "NCCL 2, on the loader's path or named by SEGUE_NCCL"};
  }
  communicators->assign(devices.size(), nullptr);
  return Check("ncclCommInitAll",
               library.comm_init_all(communicators->data(), static_cast<int>(devices.size()),
                                     devices.data()));
}

}  // namespace

Nccl::~Nccl() {
  if (aborted_ || !start_.ok()) return;
  for (void* communicator : communicators_) (void)TheLibrary().comm_destroy(communicator);
}

Status Nccl::Start() {
  const std::lock_guard lock(mutex_);
  if (!tried_) start_ = MakeCommunicators(devices_, &communicators_);
  tried_ = true;
  return start_;
}

bool Nccl::started() const {
  const std::lock_guard lock(mutex_);
  return tried_;
}

Status Nccl::AllReduce(int rank, Span<const Message> messages, DType dtype, void* stream) {
  const Library& library = TheLibrary();
  void* communicator = communicators_[static_cast<size_t>(rank)];
  const int type = dtype == DType::kF32 ? kFloat32 : kBFloat16;
  SEGUE_RETURN_IF_ERROR(Check("ncclGroupStart", library.group_start()));
  for (const Message& message : messages) {
    SEGUE_RETURN_IF_ERROR(
        Check("ncclAllReduce",
              library.all_reduce(message.from, message.to, static_cast<size_t>(message.count), type,
                                 kSum, communicator, stream)));
  }
  return Check("ncclGroupEnd", library.group_end());
}

void Nccl::Abort() {
  const std::lock_guard lock(mutex_);
  if (aborted_ || !tried_ || !start_.ok()) return;
  aborted_ = true;
  for (void* communicator : communicators_) (void)TheLibrary().comm_abort(communicator);
}

std::string NcclVersion() {
  const Library& library = TheLibrary();
  int version = 0;
  if (!library.missing.empty() || library.get_version(&version) != kSuccess) return "";
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace segue::comm
