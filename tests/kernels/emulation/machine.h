// One CTA of the sm90 attention kernel on the host: threads as fibers of one system thread, the
// copy engine, transaction barriers, warp exchanges and warpgroup products in plain C++.
//
// The kernel's own sources (producer.h, consumer.h, softmax.h) are compiled against the headers of
// shim/, which stand in for the PTX layer. Threads run in an order drawn from a seed, copies land
// late and products are computed at the last moment the program allows, so a missing wait gives
// wrong numbers and a wrong count of arrivals a deadlock. What hardware does beyond that is not
// modelled.
#pragma once

#include <ucontext.h>

#include <array>
#include <bitset>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace segue::kernels::emulation {

inline constexpr int kLanes = 32;
inline constexpr int kMaxWarps = 16;

// A wgmma whose result nobody may look at yet.
struct Product {
  float* d;
  const uint32_t* a_registers;  // null: a is in shared memory
  uint64_t a;
  uint64_t b;
  int columns;
  bool accumulate;
  bool float16;
};

struct Fiber {
  ucontext_t context{};
  std::vector<uint8_t> stack;
  int thread = 0;
  bool done = false;
  std::deque<std::vector<Product>> groups;  // committed, oldest first
  std::vector<Product> open;                // not yet committed
};

struct Warp {
  std::array<uint32_t, kLanes> values{};
  std::array<int, kLanes> kinds{};
  std::array<std::deque<std::vector<Product>>*, kLanes> groups{};
  int arrived = 0;
  uint64_t generation = 0;
  std::array<uint32_t, kLanes> result{};
};

struct Barrier {
  uint32_t count = 0;
  uint32_t pending = 0;
  int64_t bytes = 0;  // expected and not yet here
  uint32_t parity = 0;
};

struct NamedBarrier {
  uint32_t arrived = 0;
  uint64_t generation = 0;
};

// Stands for CUtensorMap: dimensions (128, rows, heads), boxes of 64 x box_rows x 1.
struct TensorMap {
  const uint16_t* data = nullptr;
  int64_t row_stride = 0;
  int32_t rows = 0;
  int32_t heads = 0;
  int32_t box_rows = 0;
};

class Machine {
 public:
  explicit Machine(uint32_t seed) : random_(seed) {}

  // Runs body(thread) for threads first..first + count - 1 until all return. `shared` is the CTA's
  // shared memory. Returns what went wrong (a deadlock, lanes that meet in different exchanges, a
  // misaligned copy); empty when nothing did.
  std::string Run(const std::vector<int>& threads, uint8_t* shared, int64_t shared_bytes,
                  const std::function<void(int)>& body);

  static Machine& current();
  void MakeCurrent();

  // What the shim calls, in the running fiber.
  int thread() const { return running_->thread; }
  void WaitUntil(const std::function<bool()>& ready);
  // All lanes of the warp meet; returns what each brought.
  const std::array<uint32_t, kLanes>& Exchange(int kind, uint32_t value);
  uint32_t SharedOffset(const void* pointer) const;
  uint8_t* SharedAt(uint32_t offset);

  void InitBarrier(uint64_t* barrier, uint32_t count);
  void Arrive(uint64_t* barrier, int64_t bytes);
  void WaitForPhase(uint64_t* barrier, uint32_t parity);
  // Counts this thread in at named barrier `id`; `waits` until `threads` have come.
  void ArriveNamed(uint32_t id, uint32_t threads, bool waits);
  void Load(uint32_t destination, const TensorMap* map, uint64_t* barrier, const int32_t* at);

  void Issue(const Product& product) { running_->open.push_back(product); }
  void Commit();
  void WaitForProducts(int unfinished);
  void Fail(const std::string& what);

 private:
  struct Copy {
    uint32_t destination;
    const TensorMap* map;
    uint64_t* barrier;
    int32_t column, row, head;
  };

  void DrawPaused();
  static void Enter();
  void Yield();
  void LandCopy();
  void Complete(Barrier& barrier);
  void Compute(const Product& product, const std::array<const uint32_t*, kLanes>& a_of_lane);
  float Element(uint64_t operand, uint32_t row, uint32_t column, bool across, bool float16);

  std::mt19937 random_;
  ucontext_t scheduler_{};
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* running_ = nullptr;
  std::map<int, Warp> warps_;
  std::map<uint64_t*, Barrier> barriers_;
  std::map<uint32_t, NamedBarrier> named_barriers_;
  std::deque<Copy> copies_;
  uint8_t* shared_ = nullptr;
  int64_t shared_bytes_ = 0;
  const std::function<void(int)>* body_ = nullptr;
  std::string failure_;
  bool progress_ = false;
  std::bitset<kMaxWarps> paused_;
};

}  // namespace segue::kernels::emulation
