#include "kernels/row_table.h"

#include "kernels/check.h"

namespace segue::kernels {

Status CheckRowTable(const char* op, const char* argument, const RowTable& table,
                     const MatrixView& rows, const Context& context) {
  if (table.data == nullptr || table.rows < 1 || (table.rows > 1 && table.stride < rows.cols)) {
    return ArgumentError(op, argument,
                         std::string(table.data == nullptr ? "nothing, " : "") +
                             std::to_string(table.rows) + " rows " + std::to_string(table.stride) +
                             " apart",
                         "rows of " + std::to_string(rows.cols));
  }
  if (table.index == nullptr) return {};
  return CheckIndices(op, argument, table.index, rows.rows, table.rows, context);
}

}  // namespace segue::kernels
