#include "kernels/emulation/machine.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"

namespace segue::kernels::emulation {
namespace {

Machine* g_machine = nullptr;

constexpr int64_t kStackBytes = 256 << 10;
constexpr int kProductExchange = 100;
constexpr uint32_t kRoundsPaused = 40;  // on average, until other warps are paused

}  // namespace

Machine& Machine::current() { return *g_machine; }
void Machine::MakeCurrent() { g_machine = this; }

void Machine::Enter() {
  Machine& machine = *g_machine;
  (*machine.body_)(machine.running_->thread);
  machine.running_->done = true;
  machine.progress_ = true;
  machine.Yield();
}

std::string Machine::Run(const std::vector<int>& threads, uint8_t* shared, int64_t shared_bytes,
                         const std::function<void(int)>& body) {
  MakeCurrent();
  shared_ = shared;
  shared_bytes_ = shared_bytes;
  body_ = &body;
  for (const int thread : threads) {
    fibers_.push_back(std::make_unique<Fiber>());
    Fiber& fiber = *fibers_.back();
    fiber.thread = thread;
    fiber.stack.resize(kStackBytes);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    makecontext(&fiber.context, &Machine::Enter, 0);
  }
  std::vector<Fiber*> order;
  for (const auto& fiber : fibers_) order.push_back(fiber.get());
  while (!order.empty() && failure_.empty()) {
    std::shuffle(order.begin(), order.end(), random_);
    progress_ = false;
    if (random_() % kRoundsPaused == 0) DrawPaused();
    for (Fiber* fiber : order) {
      if (paused_[fiber->thread / kLanes % kMaxWarps]) continue;
      running_ = fiber;
      swapcontext(&scheduler_, &fiber->context);
      if (!failure_.empty()) break;
      if (!copies_.empty() && random_() % 64 == 0) LandCopy();
    }
    std::erase_if(order, [](const Fiber* fiber) { return fiber->done; });
    if (progress_) continue;
    if (paused_.any()) {
      paused_.reset();
    } else if (!copies_.empty()) {
      LandCopy();
    } else if (failure_.empty()) {
      failure_ = "deadlock: " + std::to_string(order.size()) + " threads wait";
    }
  }
  if (failure_.empty() && !copies_.empty()) failure_ = "copies in flight at the end";
  return failure_;
}

// Whole warps fall far behind for a while: all consumers, say, while the producer runs on.
void Machine::DrawPaused() {
  paused_.reset();
  const uint32_t kind = random_() % 4;
  for (size_t warp = 0; warp < paused_.size(); ++warp) {
    const bool producer = warp < 4;
    if (kind == 1) paused_[warp] = producer;
    if (kind == 2) paused_[warp] = !producer;
    if (kind == 3) paused_[warp] = random_() % 2 == 0;
  }
}

void Machine::Yield() { swapcontext(&running_->context, &scheduler_); }

void Machine::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = "thread " + std::to_string(running_->thread) + ": " + what;
  Yield();
}

void Machine::WaitUntil(const std::function<bool()>& ready) {
  while (!ready()) Yield();
  progress_ = true;
}

const std::array<uint32_t, kLanes>& Machine::Exchange(int kind, uint32_t value) {
  Warp& warp = warps_[thread() / kLanes];
  const int lane = thread() % kLanes;
  warp.values[lane] = value;
  warp.kinds[lane] = kind;
  warp.groups[lane] = &running_->groups;
  const uint64_t mine = warp.generation;
  progress_ = true;
  if (++warp.arrived == kLanes) {
    for (const int other : warp.kinds) {
      if (other != kind) Fail("lanes of a warp meet in different exchanges");
    }
    warp.arrived = 0;
    warp.result = warp.values;
    ++warp.generation;
  } else {
    WaitUntil([&] { return warp.generation != mine; });
  }
  return warp.result;
}

uint32_t Machine::SharedOffset(const void* pointer) const {
  return static_cast<uint32_t>(static_cast<const uint8_t*>(pointer) - shared_);
}

uint8_t* Machine::SharedAt(uint32_t offset) {
  if (offset >= shared_bytes_) Fail("an address outside shared memory");
  return shared_ + offset;
}

void Machine::InitBarrier(uint64_t* barrier, uint32_t count) {
  barriers_[barrier] = {count, count, 0, 0};
}

void Machine::Complete(Barrier& barrier) {
  if (barrier.pending == 0 && barrier.bytes == 0) {
    barrier.pending = barrier.count;
    barrier.parity ^= 1;
    progress_ = true;
  }
}

void Machine::Arrive(uint64_t* barrier, int64_t bytes) {
  Barrier& state = barriers_.at(barrier);
  if (state.pending == 0) Fail("more arrivals at a barrier than it counts");
  state.bytes += bytes;
  --state.pending;
  progress_ = true;
  Complete(state);
  if (random_() % 2 == 0) Yield();
}

void Machine::WaitForPhase(uint64_t* barrier, uint32_t parity) {
  const Barrier& state = barriers_.at(barrier);
  WaitUntil([&] { return state.parity != parity; });
}

void Machine::ArriveNamed(uint32_t id, uint32_t threads, bool waits) {
  NamedBarrier& barrier = named_barriers_[id];
  const uint64_t mine = barrier.generation;
  progress_ = true;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.generation;
  } else if (waits) {
    WaitUntil([&] { return barrier.generation != mine; });
  }
}

void Machine::Load(uint32_t destination, const TensorMap* map, uint64_t* barrier,
                   const int32_t* at) {
  if (destination % 128 != 0) Fail("a copy to a misaligned address");
  if (map->data == nullptr) Fail("a copy by a map that was never encoded");
  copies_.push_back({destination, map, barrier, at[0], at[1], at[2]});
  progress_ = true;
}

// Any of the copies in flight: they finish in no order.
void Machine::LandCopy() {
  const auto it = copies_.begin() + static_cast<int64_t>(random_() % copies_.size());
  const Copy copy = *it;
  copies_.erase(it);
  for (int32_t r = 0; r < copy.map->box_rows; ++r) {
    const int64_t row = int64_t{copy.row} + r;
    const bool inside =
        row >= 0 && row < copy.map->rows && copy.head >= 0 && copy.head < copy.map->heads;
    for (uint32_t piece = 0; piece < 8; ++piece) {
      uint32_t address = copy.destination + static_cast<uint32_t>(r) * 128 + piece * 16;
      address ^= (address >> 7 & 7) << 4;  // the 128-byte swizzle, of absolute addresses
      uint8_t* to = SharedAt(address);
      std::memset(to, 0, 16);
      if (inside) {
        std::memcpy(
            to,
            copy.map->data + row * copy.map->row_stride + copy.head * 128 + copy.column + piece * 8,
            16);
      }
    }
  }
  Barrier& state = barriers_.at(copy.barrier);
  state.bytes -= int64_t{copy.map->box_rows} * 128;
  progress_ = true;
  Complete(state);
}

void Machine::Commit() {
  running_->groups.push_back(std::move(running_->open));
  running_->open.clear();
}

// Products are computed here and not when they are issued, from the registers and the shared memory
// of this moment.
void Machine::WaitForProducts(int unfinished) {
  while (static_cast<int>(running_->groups.size()) > unfinished) {
    Exchange(kProductExchange, 0);  // every lane's A registers are as they will be used
    const std::vector<Product>& group = running_->groups.front();
    const Warp& warp = warps_[thread() / kLanes];
    for (size_t i = 0; i < group.size(); ++i) {
      std::array<const uint32_t*, kLanes> a_of_lane{};
      for (int lane = 0; lane < kLanes; ++lane) {
        if (warp.groups[lane]->front().size() != group.size())
          Fail("lanes issue different products");
        a_of_lane[lane] = warp.groups[lane]->front()[i].a_registers;
      }
      Compute(group[i], a_of_lane);
    }
    Exchange(kProductExchange + 1, 0);
    running_->groups.pop_front();
  }
}

// Element (row, column) of an operand of 16 columns (or, across, of 16 rows): the layout that
// wgmma_operand.h describes, with the swizzle of absolute addresses.
float Machine::Element(uint64_t operand, uint32_t row, uint32_t column, bool across, bool float16) {
  const uint32_t start = static_cast<uint32_t>(operand & 0x3fff) << 4;
  const uint32_t leading = static_cast<uint32_t>(operand >> 16 & 0x3fff) << 4;
  const uint32_t stride = static_cast<uint32_t>(operand >> 32 & 0x3fff) << 4;
  uint32_t address = start + row / 8 * stride + row % 8 * 128;
  address += across ? column / 64 * leading + column % 64 * 2 : column * 2;
  address ^= (address >> 7 & 7) << 4;
  uint16_t bits = 0;
  std::memcpy(&bits, SharedAt(address), 2);
  return float16 ? F16ToFloat(bits) : BF16ToFloat(bits);
}

void Machine::Compute(const Product& product,
                      const std::array<const uint32_t*, kLanes>& a_of_lane) {
  const auto lane = static_cast<uint32_t>(thread() % kLanes);
  const auto warp_row = static_cast<uint32_t>(thread() / kLanes % 4) * 16;
  const bool registers = product.a_registers != nullptr;
  for (uint32_t r = 0; r < 2; ++r) {
    float a[16];
    for (uint32_t k = 0; k < 16; ++k) {
      if (!registers) {
        a[k] = Element(product.a, warp_row + lane / 4 + 8 * r, k, false, product.float16);
        continue;
      }
      // Register 2 (k / 8) + r of lane 4 (lane / 4) + k % 8 / 2 holds columns k and k + 1.
      const uint32_t pair = a_of_lane[lane / 4 * 4 + k % 8 / 2][k / 8 * 2 + r];
      const auto bits = static_cast<uint16_t>(k % 2 == 0 ? pair & 0xffff : pair >> 16);
      a[k] = product.float16 ? F16ToFloat(bits) : BF16ToFloat(bits);
    }
    for (uint32_t j = 0; j < static_cast<uint32_t>(product.columns) / 8; ++j) {
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t column = 8 * j + lane % 4 * 2 + i;
        float& d = product.d[4 * j + 2 * r + i];
        float sum = product.accumulate ? d : 0.0f;
        for (uint32_t k = 0; k < 16; ++k) {
          const float b = registers ? Element(product.b, k, column, true, product.float16)
                                    : Element(product.b, column, k, false, product.float16);
          sum += a[k] * b;
        }
        d = sum;
      }
    }
  }
}

}  // namespace segue::kernels::emulation
