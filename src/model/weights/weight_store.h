// Where a model's weights live: in the files' mappings, or in a device's memory as bfloat16.
//
// Networks ask a store (through a WeightReader) for views of their weights and never learn which it
// is. On a device that takes two passes over the same code: on the first the store counts, on the
// second it hands out memory, and Load() then brings the elements in the order of the files.
//
//     WeightStore store = WeightStore::Device(memory, {.device = 0});
//     Build(checkpoint, store);                     // networks, thrown away: counts
//     store.bytes(WeightGroup::kResident);          // what `inspect` prints
//     SEGUE_RETURN_IF_ERROR(store.Allocate());
//     auto networks = Build(checkpoint, store);     // the same requests again
//     SEGUE_RETURN_IF_ERROR(store.Load(options));
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/span.h"
#include "device/device.h"
#include "device/tensor_view.h"
#include "model/weights/weight_loader.h"
#include "model/weights/weight_source.h"
#include "segue/status.h"

namespace segue::model {

// Weights that are there together; each group is one allocation.
enum class WeightGroup : uint8_t {
  kResident,
  kModulation,  // all that Dit::TabulateModulation reads; of no use once every step is tabulated
};
inline constexpr int kWeightGroups = 2;

// A weight, or a slice of one.
struct WeightPart {
  WeightSource source;
  WeightSlice slice;
};

// Weights one under another, such as the three of a packed QKV.
struct StackedWeight {
  // [sum of rows, cols], or a vector. On a device always there; on the host only where the parts
  // happen to lie together: nothing is copied for it.
  WeightView all;
  std::vector<WeightView> parts;  // on a device slices of `all`
};

// For one thread. Views live as long as the store.
class WeightStore {
 public:
  // Every weight begins at a multiple of this in device memory: what TMA and cuBLASLt want, and a
  // whole number of sectors.
  static constexpr int64_t kAlignment = 256;

  // The identity: a weight's view is that of its mapping, in its stored dtype. Only columns of a
  // matrix, which do not lie together, and random weights (as bfloat16) and weights in the caller's
  // memory are copied, at once, to `memory`. Allocate() and Load() do nothing.
  static WeightStore Host(DeviceMemory& memory = HostMemory());
  // Everything is bfloat16 in `memory`, which belongs to the target and outlives the store.
  static WeightStore Device(DeviceMemory& memory, const WeightTarget& target);
  // The same of one group's weights alone. The others' views have shapes and no memory: a network
  // built over this store runs nothing that reads them.
  static WeightStore DeviceGroup(DeviceMemory& memory, const WeightTarget& target,
                                 WeightGroup group);

  WeightStore(WeightStore&&) noexcept = default;
  WeightStore& operator=(WeightStore&&) noexcept = default;

  // The view of a weight or of a slice of it; on a device its memory is filled by Load(). While the
  // store counts, views are present() but must not be read. Errors: a slice that is not inside
  // (kInvalidArgument), no memory (kOutOfMemory), more than the counting pass asked for
  // (kInternal).
  Result<WeightView> Place(const WeightPart& part, WeightGroup group = WeightGroup::kResident);
  // The same for parts of the same number of columns (kInvalidArgument otherwise), or all vectors.
  Result<StackedWeight> PlaceStacked(Span<const WeightPart> parts,
                                     WeightGroup group = WeightGroup::kResident);

  // Ends counting: takes the memory of every group from the device. Error (kOutOfMemory) with
  // numbers; nothing is then held, and it may be tried again.
  Status Allocate();
  // Fills everything placed since the last Load(). Errors as LoadWeights. Afterwards sources are no
  // longer needed, so that mappings may go.
  Result<WeightLoadReport> Load(const WeightLoadOptions& options = {});

  // Whether weights are copied as bfloat16 rather than left where they are.
  bool on_device() const { return device_; }
  bool counting() const { return device_ && !allocated_; }
  // Device memory that the group takes: what was counted so far, or its allocation. On the host
  // what was copied.
  int64_t bytes(WeightGroup group) const { return blocks_[static_cast<size_t>(group)].capacity; }

 private:
  struct Free {
    DeviceMemory* memory;
    void operator()(void* pointer) const { memory->Free(pointer); }
  };
  using Block = std::unique_ptr<void, Free>;
  struct GroupBlock {
    Block block{nullptr, Free{nullptr}};
    int64_t capacity = 0;
    int64_t used = 0;
  };

  WeightStore(DeviceMemory& memory, const WeightTarget& target, bool device)
      : memory_(&memory), target_(target), device_(device) {}
  // Whether a weight of the group gets an address of its own in this pass.
  bool Places(WeightGroup group) const { return allocated_ && held(group); }
  bool held(WeightGroup group) const { return held_[static_cast<size_t>(group)]; }
  Result<uint16_t*> Take(int64_t elements, WeightGroup group);
  void Enqueue(const WeightSource& source, const WeightExtent& extent, uint16_t* to);
  Result<WeightView> PlaceOnHost(const WeightPart& part);
  Result<void*> TakeOnHost(int64_t bytes);

  DeviceMemory* memory_;
  WeightTarget target_;
  bool device_;
  bool allocated_ = false;
  std::array<bool, kWeightGroups> held_{true, true};
  std::array<GroupBlock, kWeightGroups> blocks_;
  std::vector<Block> copies_;  // of the host store
  std::vector<WeightTransfer> transfers_;
};

// What a host store gives without memory of its own: a whole weight or rows of one in a mapping.
// Error (kUnsupported): what would have to be copied.
Result<WeightView> ViewInMapping(const WeightPart& part);
// Also where the parts do not lie together.
Result<StackedWeight> StackInMapping(Span<const WeightPart> parts);

}  // namespace segue::model
