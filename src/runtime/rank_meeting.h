// Where the ranks of one request agree before any of them goes on.
//
// Sums end with an error when a rank does not arrive, but leave the group unhealthy: what can go
// wrong on one rank alone and do no harm, such as memory that is not there, is told here first, so
// that either all ranks begin a forward or none does.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "segue/status.h"

namespace segue::runtime {

// Of the ranks of one process. Thread-safe.
class RankMeeting {
 public:
  RankMeeting(int ranks, std::chrono::milliseconds time_limit)
      : ranks_(ranks), time_limit_(time_limit) {}

  // Waits for every rank to call. OK where all brought OK, else an error that one of them brought:
  // the same on every rank. Errors besides: a rank that did not come within the time limit, after
  // which there are no more meetings; what Abandon was told.
  Status Agree(const Status& own);

  // Ends the meetings, the one under way too. The first reason stays.
  void Abandon(const Error& reason);
  // OK, or why there are no more meetings.
  Status health() const;

 private:
  const int ranks_;
  const std::chrono::milliseconds time_limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  int arrived_ = 0;
  uint64_t meetings_ = 0;         // that ended
  std::optional<Error> brought_;  // to the meeting under way
  Status outcome_;                // of the last that ended
  std::optional<Error> abandoned_;
};

}  // namespace segue::runtime
