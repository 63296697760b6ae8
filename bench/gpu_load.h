// How fast weights come from a file into a GPU's memory.
#pragma once

#include "bench/suite.h"

namespace segue::bench {

// Case values: mib (of the file, which is written into the temporary directory). Two rows: `-cold`,
// nothing of the file in the page cache, and `-warm`, all of it. The peer is the slower of the disk
// (cold only: the same file read past the page cache, by one thread and by WeightFile::kDirectReads
// in turn) and the bus (copies of page-locked memory), each at the best of its runs.
Result<std::vector<Row>> BenchGpuLoad(const Case& one, const SuiteOptions& options);

}  // namespace segue::bench
