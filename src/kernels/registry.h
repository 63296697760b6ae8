// How an operation finds its implementation.
//
// Every operation has an ordered list of implementations, the fastest first and the plain
// references (one a device) last. Capability lives in the implementation (`rejects`), choice in the
// list, and a KernelLog says which one ran and why those before it did not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/span.h"
#include "device/stream.h"
#include "kernels/cpu_isa.h"
#include "segue/status.h"

namespace segue::kernels {

// Where a result is rounded on its way to memory. kBF16 reproduces the bfloat16 reference: every
// operation's output is rounded exactly where the reference writes a bfloat16 tensor, while the
// storage stays float32. kBF16Once rounds what reaches memory and nothing before it: an operation
// that is a chain of the reference's stays float32 within. On a GPU, where memory is bfloat16
// whatever is asked for, kNone and kBF16Once are the same.
enum class Rounding : uint8_t { kNone, kBF16, kBF16Once };

// Which implementations ran, how often, and why others were passed over. Thread-safe.
class KernelLog {
 public:
  struct Entry {
    std::string kernel;  // the implementation that ran
    int64_t calls = 0;
    // "avx512: this processor has no AVX-512": each earlier implementation's reason, last call.
    std::vector<std::string> passed_over;
  };

  // Cheap enough for every call: compares pointers, builds no text. `op`, `kernel` and the reasons
  // (each a name and a text, of every earlier implementation) are string literals.
  struct Reason {
    const char* kernel;
    const char* text;
  };
  void Count(const char* op, const char* kernel, Span<const Reason> passed_over);
  // How often an implementation ran.
  struct Tally {
    const char* op;
    const char* kernel;
    int64_t calls;
  };
  std::vector<Tally> Tallies() const;
  // What ran since `before` was taken.
  std::vector<Tally> Since(Span<const Tally> before) const;
  // Counts calls again that were recorded once and now run without passing through the list.
  void Repeat(Span<const Tally> calls);
  // Keyed by operation, then by implementation.
  std::map<std::string, std::vector<Entry>> Snapshot() const;

 private:
  struct Record {
    const char* op;
    const char* kernel;
    int64_t calls;
    std::vector<Reason> passed_over;
  };

  mutable std::mutex mutex_;
  std::vector<Record> records_;
};

class ConvolutionLibrary;
class ProductLibrary;

// What an operation needs besides its Params. Params point into memory of the stream's device.
struct Context {
  Stream stream;
  KernelLog* log = nullptr;             // may be null: nothing is recorded
  bool reference_only = false;          // run the plain references, to judge the fast ones
  CpuIsa widest_isa = CpuIsa::kAvx512;  // use no wider one, to judge the narrower ones
  // On a GPU, products and convolutions run in these; null: none, which their implementations say.
  ProductLibrary* products = nullptr;
  ConvolutionLibrary* convolutions = nullptr;

  // Of matrices: float32 on the CPU, bfloat16 on a GPU, where every result is rounded to it.
  DType activation_type() const {
    return stream.device() == DeviceKind::kCpu ? DType::kF32 : DType::kBF16;
  }
};

inline constexpr bool kReference = true;

// A copy of a text that lives as long as the process: what KernelLog wants of a name that is not a
// literal. One copy a distinct text.
const char* Interned(std::string_view text);

template <typename Params>
struct Kernel {
  const char* name;
  // Null when it can run these parameters here; otherwise the reason it cannot.
  const char* (*rejects)(const Params&, const Context&);
  Status (*run)(const Params&, const Context&);
  bool reference = false;
};

// The longest list of implementations that an operation may have.
inline constexpr size_t kMaxKernels = 8;

// The error when no implementation of `op` accepts its parameters; lists every reason.
Error NoKernelError(const char* op, Span<const KernelLog::Reason> reasons);

// Runs the first kernel of the list that accepts the parameters.
template <typename Params>
Status Dispatch(const char* op, Span<const Kernel<Params>> list, const Params& params,
                const Context& context) {
  std::array<KernelLog::Reason, kMaxKernels> reasons;
  for (size_t i = 0; i < list.size(); ++i) {
    const Kernel<Params>& kernel = list[i];
    const char* reason = context.reference_only && !kernel.reference
                             ? "only references were asked for"
                             : kernel.rejects(params, context);
    if (reason == nullptr) {
      if (context.log != nullptr) context.log->Count(op, kernel.name, {reasons.data(), i});
      return kernel.run(params, context);
    }
    reasons[i] = {kernel.name, reason};
  }
  return NoKernelError(op, {reasons.data(), list.size()});
}

}  // namespace segue::kernels
