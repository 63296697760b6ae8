// Adapters of tensors with a batch dimension.
#include <algorithm>
#include <utility>

#include "attention/adapters/batch_parts.h"

namespace segue::attention {
namespace {

constexpr char kDense[] = "attention from dense tensors";
constexpr char kPrefixMain[] = "attention from prefix and main";
constexpr char kKeyMask[] = "attention from a key mask";

// The tensor sets of both parts; sequences of the second stand behind those of the first.
struct JointSets {
  DenseSets prefix;
  DenseSets main;

  std::vector<TensorSet> Tensors() const {
    std::vector<TensorSet> tensors = prefix.tensors();
    tensors.insert(tensors.end(), main.tensors().begin(), main.tensors().end());
    return tensors;
  }
};

Result<JointSets> MakeJointSets(const char* operation, const PrefixMain& joint,
                                const Options& options) {
  SEGUE_RETURN_IF_ERROR(CheckOptions(operation, options));
  const auto equal_rows = [operation](const char* name, const Dense& dense) -> Status {
    if (dense.q_rows == dense.kv_rows) return {};
    return Invalid(operation, name,
                   std::to_string(dense.q_rows) + " query and " + std::to_string(dense.kv_rows) +
                       " key/value rows",
                   "as many of both");
  };
  SEGUE_RETURN_IF_ERROR(equal_rows("prefix", joint.prefix));
  SEGUE_RETURN_IF_ERROR(equal_rows("main", joint.main));
  if (joint.main.batch != joint.prefix.batch) {
    return Invalid(operation, "main.batch", std::to_string(joint.main.batch),
                   "prefix.batch, " + std::to_string(joint.prefix.batch));
  }
  JointSets sets;
  SEGUE_ASSIGN_OR_RETURN(sets.prefix,
                         DenseSets::Make(operation, "prefix.", joint.prefix, options, 0));
  const auto first = static_cast<int32_t>(sets.prefix.tensors().size());
  SEGUE_ASSIGN_OR_RETURN(sets.main,
                         DenseSets::Make(operation, "main.", joint.main, options, first));
  return sets;
}

Status CheckPartLengths(const std::string& name, std::span<const int32_t> lengths,
                        const Dense& dense) {
  if (lengths.size() != static_cast<size_t>(dense.batch)) {
    return Invalid(kPrefixMain, name, std::to_string(lengths.size()) + " lengths",
                   "one for each of " + std::to_string(dense.batch) + " sequences");
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] >= 0 && lengths[i] <= dense.q_rows) continue;
    return Invalid(kPrefixMain, name + "[" + std::to_string(i) + "]", std::to_string(lengths[i]),
                   "0 to " + std::to_string(dense.q_rows));
  }
  return {};
}

// Runs of a part's rows whose mask is set become segments; with `padding` the others become
// segments of queries alone.
void AddRuns(const DenseSets& part, int64_t sequence, std::span<const uint8_t> mask,
             std::vector<SegmentRows>& used, std::vector<SegmentRows>* padding) {
  for (size_t begin = 0; begin < mask.size();) {
    const bool set = mask[begin] != 0;
    size_t end = begin + 1;
    while (end < mask.size() && (mask[end] != 0) == set) ++end;
    const auto first = static_cast<int64_t>(begin);
    const auto rows = static_cast<int64_t>(end - begin);
    if (set) {
      used.push_back(part.Both(sequence, first, rows));
    } else if (padding != nullptr) {
      padding->push_back(part.Queries(sequence, first, rows));
    }
    begin = end;
  }
}

}  // namespace

Result<Batch> FromDense(const Dense& dense, const Options& options) {
  SEGUE_RETURN_IF_ERROR(CheckOptions(kDense, options));
  SEGUE_ASSIGN_OR_RETURN(const DenseSets sets, DenseSets::Make(kDense, "", dense, options, 0));
  SegmentLists sequences;
  for (int64_t b = 0; b < dense.batch; ++b) sequences.push_back({sets.All(b)});
  return MakeBatch(kDense, sets.tensors(), sequences);
}

Result<Batch> FromPrefixMain(const PrefixMain& joint, const Options& options) {
  SEGUE_ASSIGN_OR_RETURN(const JointSets sets, MakeJointSets(kPrefixMain, joint, options));
  SEGUE_RETURN_IF_ERROR(CheckPartLengths("prefix_lengths", joint.prefix_lengths, joint.prefix));
  const bool whole = joint.main_lengths.empty();
  if (!whole) {
    SEGUE_RETURN_IF_ERROR(CheckPartLengths("main_lengths", joint.main_lengths, joint.main));
  }
  SegmentLists sequences;
  SegmentLists padding;
  for (int64_t b = 0; b < joint.main.batch; ++b) {
    const int64_t prefix = joint.prefix_lengths[b];
    const int64_t main = whole ? joint.main.q_rows : joint.main_lengths[b];
    sequences.push_back({sets.prefix.Both(b, 0, prefix), sets.main.Both(b, 0, main)});
    padding.push_back({sets.prefix.Queries(b, prefix, joint.prefix.q_rows - prefix),
                       sets.main.Queries(b, main, joint.main.q_rows - main)});
  }
  if (joint.zero_padding) sequences.insert(sequences.end(), padding.begin(), padding.end());
  return MakeBatch(kPrefixMain, sets.Tensors(), sequences);
}

Result<Batch> FromKeyMask(const PrefixMain& joint, std::span<const uint8_t> mask,
                          const Options& options) {
  SEGUE_ASSIGN_OR_RETURN(const JointSets sets, MakeJointSets(kKeyMask, joint, options));
  for (const auto& [name, lengths] : {std::pair{"prefix_lengths", joint.prefix_lengths},
                                      std::pair{"main_lengths", joint.main_lengths}}) {
    if (lengths.empty()) continue;
    return Invalid(kKeyMask, name, std::to_string(lengths.size()) + " lengths",
                   "none beside a mask");
  }
  const auto prefix_rows = static_cast<size_t>(joint.prefix.q_rows);
  const auto main_rows = static_cast<size_t>(joint.main.q_rows);
  const size_t row = prefix_rows + main_rows;
  const auto batch = static_cast<size_t>(joint.main.batch);
  if (mask.size() != batch * row) {
    return Invalid(kKeyMask, "mask", std::to_string(mask.size()) + " entries",
                   std::to_string(batch) + " x " + std::to_string(row));
  }
  SegmentLists sequences(batch);
  SegmentLists padding(batch);
  for (size_t b = 0; b < batch; ++b) {
    const auto sequence = static_cast<int64_t>(b);
    std::vector<SegmentRows>* unused = joint.zero_padding ? &padding[b] : nullptr;
    AddRuns(sets.prefix, sequence, mask.subspan(b * row, prefix_rows), sequences[b], unused);
    AddRuns(sets.main, sequence, mask.subspan(b * row + prefix_rows, main_rows), sequences[b],
            unused);
  }
  if (joint.zero_padding) sequences.insert(sequences.end(), padding.begin(), padding.end());
  return MakeBatch(kKeyMask, sets.Tensors(), sequences);
}

}  // namespace segue::attention
