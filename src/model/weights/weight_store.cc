#include "model/weights/weight_store.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "device/thread_pool.h"
#include "kernels/random_weights.h"

namespace segue::model {
namespace {

constexpr const char* kPlace = "place weight";

// What views point to while a store counts, and those of a group that it leaves out.
alignas(WeightStore::kAlignment) constexpr uint16_t kCounted = 0;

int64_t AlignUp(int64_t bytes) {
  return (bytes + WeightStore::kAlignment - 1) / WeightStore::kAlignment * WeightStore::kAlignment;
}

Error OutOfMemory(const char* what, int64_t bytes) {
  return {.code = ErrorCode::kOutOfMemory,
          .operation = kPlace,
          .argument = what,
          .got = "a refused allocation",
          .wanted = std::to_string(bytes) + " bytes"};
}

WeightView ViewOf(const void* data, DType dtype, const WeightExtent& extent) {
  return {.data = data, .dtype = dtype, .shape = extent.shape};
}

// [n_0 + n_1 + ..., cols], or the vector of all.
Result<Shape> StackedShape(Span<const WeightPart> parts, Span<const WeightExtent> extents) {
  int64_t rows = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Shape& shape = extents[i].shape;
    const Shape& first = extents[0].shape;
    if (shape.rank() > 2 || shape.rank() != first.rank() ||
        (shape.rank() == 2 && shape[1] != first[1])) {
      return Error{.code = ErrorCode::kInvalidArgument,
                   .operation = "stack weights",
                   .argument = parts[i].source.name,
                   .got = shape.ToString(),
                   .wanted = "columns like the first part's " + first.ToString()};
    }
    rows += shape[0];
  }
  if (parts.empty() || extents[0].shape.rank() == 1) return Shape{rows};
  return Shape{rows, extents[0].shape[1]};
}

Result<std::vector<WeightExtent>> ExtentsOf(Span<const WeightPart> parts) {
  std::vector<WeightExtent> extents;
  for (const WeightPart& part : parts) {
    SEGUE_ASSIGN_OR_RETURN(const WeightExtent extent, ExtentOf(part.source, part.slice));
    extents.push_back(extent);
  }
  return extents;
}

// The view of all parts where they lie one behind the other, else none.
WeightView Joined(const std::vector<WeightView>& parts, const Shape& shape) {
  if (parts.empty()) return {};
  const auto* end = static_cast<const uint8_t*>(parts[0].data);
  for (const WeightView& part : parts) {
    if (part.data != end || part.dtype != parts[0].dtype) return {};
    end += part.shape.NumElements() * static_cast<int64_t>(SizeOf(part.dtype));
  }
  return {.data = parts[0].data, .dtype = parts[0].dtype, .shape = shape};
}

template <typename Place>
Result<StackedWeight> Stack(Span<const WeightPart> parts, const Place& place) {
  SEGUE_ASSIGN_OR_RETURN(const std::vector<WeightExtent> extents, ExtentsOf(parts));
  SEGUE_ASSIGN_OR_RETURN(const Shape shape, StackedShape(parts, extents));
  StackedWeight stacked;
  for (const WeightPart& part : parts) {
    SEGUE_ASSIGN_OR_RETURN(const WeightView view, place(part));
    stacked.parts.push_back(view);
  }
  stacked.all = Joined(stacked.parts, shape);
  return stacked;
}

}  // namespace

Result<WeightView> ViewInMapping(const WeightPart& part) {
  const WeightSource& source = part.source;
  SEGUE_ASSIGN_OR_RETURN(const WeightExtent extent, ExtentOf(source, part.slice));
  if (source.file == nullptr || !extent.contiguous()) {
    return Error{.code = ErrorCode::kUnsupported,
                 .operation = kPlace,
                 .argument = source.name,
                 .got = source.file == nullptr ? "a weight that is in no file" : "columns",
                 .wanted = "a store with memory to put them in"};
  }
  const auto offset = extent.first * static_cast<int64_t>(SizeOf(source.view.dtype));
  return ViewOf(static_cast<const uint8_t*>(source.view.data) + offset, source.view.dtype, extent);
}

Result<StackedWeight> StackInMapping(Span<const WeightPart> parts) {
  return Stack(parts, ViewInMapping);
}

WeightStore WeightStore::Host(DeviceMemory& memory) {
  return {memory, {.kind = DeviceKind::kCpu}, false};
}

WeightStore WeightStore::Device(DeviceMemory& memory, const WeightTarget& target) {
  return {memory, target, true};
}

WeightStore WeightStore::DeviceGroup(DeviceMemory& memory, const WeightTarget& target,
                                     WeightGroup group) {
  WeightStore store = Device(memory, target);
  store.held_ = {};
  store.held_[static_cast<size_t>(group)] = true;
  return store;
}

Result<uint16_t*> WeightStore::Take(int64_t elements, WeightGroup group) {
  GroupBlock& block = blocks_[static_cast<size_t>(group)];
  const int64_t bytes = AlignUp(2 * elements);
  if (!Places(group)) {
    if (held(group)) block.capacity += bytes;
    return const_cast<uint16_t*>(&kCounted);
  }
  if (block.block == nullptr || bytes > block.capacity - block.used) {
    return Error{.code = ErrorCode::kInternal,
                 .operation = kPlace,
                 .argument = "memory of the group",
                 .got = std::to_string(bytes) + " bytes with " + std::to_string(block.used) +
                        " of " + std::to_string(block.capacity) + " in use",
                 .wanted = "what the counting pass asked for"};
  }
  uint16_t* to = static_cast<uint16_t*>(block.block.get()) + block.used / 2;
  block.used += bytes;
  return to;
}

void WeightStore::Enqueue(const WeightSource& source, const WeightExtent& extent, uint16_t* to) {
  if (extent.elements() > 0) transfers_.push_back({source, extent, to});
}

Result<WeightView> WeightStore::Place(const WeightPart& part, WeightGroup group) {
  if (!device_) return PlaceOnHost(part);
  SEGUE_ASSIGN_OR_RETURN(const WeightExtent extent, ExtentOf(part.source, part.slice));
  SEGUE_ASSIGN_OR_RETURN(uint16_t* const to, Take(extent.elements(), group));
  if (Places(group)) Enqueue(part.source, extent, to);
  return ViewOf(to, DType::kBF16, extent);
}

Result<StackedWeight> WeightStore::PlaceStacked(Span<const WeightPart> parts, WeightGroup group) {
  if (!device_) return Stack(parts, [this](const WeightPart& part) { return PlaceOnHost(part); });
  SEGUE_ASSIGN_OR_RETURN(const std::vector<WeightExtent> extents, ExtentsOf(parts));
  SEGUE_ASSIGN_OR_RETURN(const Shape shape, StackedShape(parts, extents));
  SEGUE_ASSIGN_OR_RETURN(uint16_t* to, Take(shape.NumElements(), group));
  StackedWeight stacked{.all = {.data = to, .dtype = DType::kBF16, .shape = shape}};
  for (size_t i = 0; i < parts.size(); ++i) {
    stacked.parts.push_back(ViewOf(to, DType::kBF16, extents[i]));
    if (!Places(group)) continue;
    Enqueue(parts[i].source, extents[i], to);
    to += extents[i].elements();
  }
  return stacked;
}

Result<void*> WeightStore::TakeOnHost(int64_t bytes) {
  Block block(memory_->Allocate(bytes), Free{memory_});
  if (block == nullptr) return OutOfMemory("host memory of weights", bytes);
  blocks_[static_cast<size_t>(WeightGroup::kResident)].capacity += bytes;
  copies_.push_back(std::move(block));
  return copies_.back().get();
}

Result<WeightView> WeightStore::PlaceOnHost(const WeightPart& part) {
  const WeightSource& source = part.source;
  SEGUE_ASSIGN_OR_RETURN(const WeightExtent extent, ExtentOf(source, part.slice));
  if (source.file != nullptr && extent.contiguous()) return ViewInMapping(part);
  const auto element = static_cast<int64_t>(SizeOf(source.view.dtype));
  SEGUE_ASSIGN_OR_RETURN(void* const to, TakeOnHost(extent.elements() * element));
  if (source.random()) {
    ThreadPool pool(1);
    SEGUE_RETURN_IF_ERROR(kernels::RandomWeights({.key = source.random_key,
                                                  .mean = source.mean,
                                                  .deviation = source.deviation,
                                                  .first = extent.first,
                                                  .stride = extent.stride,
                                                  .rows = extent.rows,
                                                  .cols = extent.cols,
                                                  .y = static_cast<uint16_t*>(to)},
                                                 {.stream = Stream::Cpu(pool)}));
    return ViewOf(to, DType::kBF16, extent);
  }
  const auto* from = static_cast<const uint8_t*>(source.view.data) + extent.first * element;
  for (int64_t row = 0; row < extent.rows && extent.cols > 0; ++row) {
    std::memcpy(static_cast<uint8_t*>(to) + row * extent.cols * element,
                from + row * extent.stride * element, static_cast<size_t>(extent.cols * element));
  }
  return ViewOf(to, source.view.dtype, extent);
}

Status WeightStore::Allocate() {
  if (!device_ || allocated_) return {};
  for (GroupBlock& block : blocks_) {
    if (block.capacity == 0) continue;
    block.block = Block(memory_->Allocate(block.capacity), Free{memory_});
    if (block.block != nullptr) continue;
    int64_t all = 0;
    for (GroupBlock& other : blocks_) {
      other.block.reset();
      all += other.capacity;
    }
    Error error = OutOfMemory("device memory of weights", block.capacity);
    error.wanted += " of " + std::to_string(all) + " in all";
    return error;
  }
  allocated_ = true;
  return {};
}

Result<WeightLoadReport> WeightStore::Load(const WeightLoadOptions& options) {
  std::vector<WeightTransfer> transfers = std::exchange(transfers_, {});
  if (transfers.empty()) return WeightLoadReport{};
  return LoadWeights(transfers, target_, options);
}

}  // namespace segue::model
