#include "runtime/rank_meeting.h"

#include <string>
#include <utility>

namespace segue::runtime {

Status RankMeeting::Agree(const Status& own) {
  std::unique_lock lock(mutex_);
  if (abandoned_) return *abandoned_;
  if (!own.ok() && !brought_) brought_ = own.error();
  if (++arrived_ == ranks_) {
    outcome_ = brought_ ? Status(*brought_) : Status();
    brought_.reset();
    arrived_ = 0;
    ++meetings_;
    changed_.notify_all();
    return outcome_;
  }
  // The outcome stays until all have come to the next meeting, this rank among them.
  const uint64_t meeting = meetings_;
  const bool ended = changed_.wait_for(
      lock, time_limit_, [&] { return meetings_ != meeting || abandoned_.has_value(); });
  if (meetings_ != meeting) return outcome_;
  if (!ended) {
    abandoned_ = Error{.code = ErrorCode::kInternal,
                       .operation = "begin a step on all ranks",
                       .argument = "ranks",
                       .got = std::to_string(arrived_) + " of " + std::to_string(ranks_),
                       .wanted = "all within " + std::to_string(time_limit_.count()) + " ms"};
    changed_.notify_all();
  }
  return *abandoned_;
}

void RankMeeting::Abandon(const Error& reason) {
  const std::lock_guard lock(mutex_);
  if (!abandoned_) abandoned_ = reason;
  changed_.notify_all();
}

Status RankMeeting::health() const {
  const std::lock_guard lock(mutex_);
  return abandoned_ ? Status(*abandoned_) : Status();
}

}  // namespace segue::runtime
