// Between host memory and the memory that a stream's operations work on.
#pragma once

#include <cstdint>
#include <vector>

#include "base/span.h"
#include "device/stream.h"
#include "device/tensor_view.h"
#include "segue/status.h"

namespace segue {

// Copies into the stream's memory, in the order of its work. `from` may be freed at once.
Status CopyIn(void* to, const void* from, int64_t bytes, const Stream& stream);

// Copies out of the stream's memory, waiting for the work in front of it.
Status CopyOut(void* to, const void* from, int64_t bytes, const Stream& stream);

// Copies within the stream's memory.
Status CopyWithin(void* to, const void* from, int64_t bytes, const Stream& stream);

// Copies a matrix within the stream's memory. Both have one shape and dtype; rows may lie apart.
Status CopyMatrix(const MatrixView& to, const MatrixView& from, const Stream& stream);

// A matrix of F32 or BF16 as float32 on the host, rows side by side. Waits for the work in front.
Result<std::vector<float>> ReadMatrix(const MatrixView& matrix, const Stream& stream);

// float32 host values into a contiguous matrix of F32, or of BF16, rounded to nearest even.
Status WriteMatrix(const MatrixView& matrix, Span<const float> values, const Stream& stream);

}  // namespace segue
