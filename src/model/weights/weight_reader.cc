#include <string>
#include <utility>
#include <vector>

#include "model/weights/json.h"
#include "model/weights/tensor_table.h"

namespace segue::model {

WeightView WeightReader::Place(const WeightSource& source, const WeightUse& use) {
  const WeightPart part{source, use.slice};
  Result<WeightView> view =
      store_ != nullptr ? store_->Place(part, use.group) : ViewInMapping(part);
  if (view.ok()) return *view;
  errors_.push_back(view.error());
  return {};
}

WeightView WeightReader::Take(const std::string& name, const Shape& shape, const WeightUse& use) {
  taken_.insert(name);
  const Result<WeightSource> source = table_->Locate(name, shape);
  if (source.ok()) return Place(*source, use);
  errors_.push_back(source.error());
  return {};
}

WeightView WeightReader::TakeOptional(const std::string& name, const Shape& shape,
                                      const WeightUse& use) {
  taken_.insert(name);
  const Result<std::optional<WeightSource>> source = table_->LocateOptional(name, shape);
  if (!source.ok()) {
    errors_.push_back(source.error());
    return {};
  }
  return source->has_value() ? Place(**source, use) : WeightView();
}

StackedWeight WeightReader::TakeStacked(Span<const StackedPart> parts, WeightGroup group) {
  std::vector<WeightPart> located;
  for (const StackedPart& part : parts) {
    taken_.insert(part.name);
    Result<WeightSource> source = table_->Locate(part.name, part.shape);
    if (source.ok()) {
      located.push_back({std::move(*source), part.slice});
    } else {
      errors_.push_back(source.error());
    }
  }
  if (located.size() != parts.size()) return {};
  Result<StackedWeight> stacked =
      store_ != nullptr ? store_->PlaceStacked(located, group) : StackInMapping(located);
  if (stacked.ok()) return std::move(*stacked);
  errors_.push_back(stacked.error());
  return {};
}

Status WeightReader::Finish() const {
  if (errors_.empty()) return {};
  if (errors_.size() == 1) return errors_.front();
  Error all = errors_.front();
  std::vector<std::string> others;
  for (size_t i = 1; i < errors_.size(); ++i) {
    others.push_back(errors_[i].argument + ": " + errors_[i].got);
  }
  all.wanted += "; and " + std::to_string(others.size()) + " other tensors: " + JoinNames(others);
  return all;
}

std::vector<std::string> WeightReader::Unused() const {
  std::vector<std::string> names;
  for (const TensorTable::Item& item : table_->items()) {
    if (!taken_.contains(item.entry->name)) names.push_back(item.entry->name);
  }
  return names;
}

}  // namespace segue::model
