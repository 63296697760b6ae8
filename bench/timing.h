// How two implementations are timed against each other.
#pragma once

#include <functional>

namespace segue::bench {

struct Timing {
  double ours_s = 0.0;  // median seconds of one call
  double peer_s = 0.0;  // 0 without a peer
};

// Runs A B B A for `rounds` rounds, so that a drift of the machine meets both alike, and takes the
// median of each side. A sample repeats its call for about `sample_s` seconds. `peer` may be empty.
Timing TimePair(const std::function<void()>& ours, const std::function<void()>& peer, int rounds,
                double sample_s);

}  // namespace segue::bench
