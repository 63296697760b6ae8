// Columns that line up.
#pragma once

#include <string>
#include <vector>

namespace segue::cli {

// Rows of cells as text, two blanks between columns. Columns whose number is in `right` are
// flushed right. Rows may be short. No blanks at line ends.
class Table {
 public:
  explicit Table(std::vector<size_t> right = {}) : right_(std::move(right)) {}

  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string Text(const std::string& indent = "") const;

 private:
  std::vector<size_t> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace segue::cli
