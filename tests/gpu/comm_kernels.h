// Launchers of comm_kernels.cu: what tests of groups write and check without the host.
#pragma once

#include <cstdint>

namespace segue::comm {

// A counter in device memory says which call this is, so that a graph tells its replays apart.

// Holds the stream up for some time below `most_ns`, another one for every call and rank.
void LaunchDelay(const uint32_t* call, int rank, uint32_t most_ns, void* stream);
// values[i] (bfloat16) = (7 i + 5 rank + 3 call) mod 31: sums over eight ranks are exact.
void LaunchFill(uint16_t* values, int64_t count, int rank, const uint32_t* call, void* stream);
// Adds to *wrong how many of the sums are not those of this call, and then counts the call.
void LaunchCheck(const uint16_t* sums, int64_t count, int ranks, uint32_t* call, uint32_t* wrong,
                 void* stream);

}  // namespace segue::comm
