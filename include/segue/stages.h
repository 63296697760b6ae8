// Named tensors on disk: what `segue generate --dump` writes and `--latents` reads.
#pragma once

#include <string>
#include <vector>

#include "segue/request.h"
#include "segue/status.h"

namespace segue {

// Writes tensors as one safetensors file of float32, which appears under its name only when
// complete. Errors: a repeated name, a shape that does not hold its values, what the operating
// system refuses.
Status WriteStages(const std::string& path, const std::vector<StageTensor>& stages);

// The initial noise in a safetensors file: its tensor "latents", else "noise" (as stages that were
// written name it), else the only tensor of the file; any float dtype, [rows, channels] or
// [1, rows, channels]. Errors: an unsound file, no such tensor (the names there are listed),
// integers, another rank, a non-finite value.
Result<StageTensor> ReadLatents(const std::string& path);

}  // namespace segue
