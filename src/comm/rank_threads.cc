#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "comm/group.h"
#include "device/gpu.h"

namespace segue::comm {
namespace {

Error ThrownError(int rank, const char* what) {
  return {.code = ErrorCode::kInternal,
          .operation = "run rank " + std::to_string(rank),
          .argument = "",
          .got = std::string("an exception: ") + what,
          .wanted = "a status"};
}

Status Guarded(const std::function<Status(int)>& body, int rank) {
  try {
    return body(rank);
  } catch (const std::exception& exception) {
    return ThrownError(rank, exception.what());
  } catch (...) {
    return ThrownError(rank, "of an unknown type");
  }
}

}  // namespace

struct RankThreads::State {
  std::mutex mutex;
  std::condition_variable start;
  std::condition_variable finished;
  // Guarded by mutex.
  const std::function<Status(int)>* body = nullptr;
  uint64_t round = 0;
  int running = 0;
  bool stopping = false;
  std::optional<Error> first_error;
};

RankThreads::RankThreads(const Group& group) : group_(&group), state_(std::make_unique<State>()) {
  threads_.reserve(static_cast<size_t>(group.size()));
  for (int rank = 0; rank < group.size(); ++rank) {
    threads_.emplace_back([this, rank] { Loop(rank); });
  }
}

Result<std::unique_ptr<RankThreads>> RankThreads::Start(const Group& group) {
  std::unique_ptr<RankThreads> threads(new RankThreads(group));
  SEGUE_RETURN_IF_ERROR(threads->Run([&group](int rank) -> Status {
    return group.device(rank) < 0 ? Status() : SetCurrentDevice(group.device(rank));
  }));
  return threads;
}

RankThreads::~RankThreads() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->start.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status RankThreads::Run(const std::function<Status(int rank)>& body) {
  std::unique_lock lock(state_->mutex);
  state_->body = &body;
  state_->running = group_->size();
  state_->first_error.reset();
  ++state_->round;
  state_->start.notify_all();
  state_->finished.wait(lock, [this] { return state_->running == 0; });
  state_->body = nullptr;
  return state_->first_error.has_value() ? Status(*state_->first_error) : Status();
}

void RankThreads::Loop(int rank) {
  uint64_t done = 0;
  for (;;) {
    const std::function<Status(int)>* body = nullptr;
    {
      std::unique_lock lock(state_->mutex);
      state_->start.wait(lock, [&] { return state_->stopping || state_->round != done; });
      if (state_->stopping) return;
      done = state_->round;
      body = state_->body;
    }
    const Status status = Guarded(*body, rank);
    {
      const std::lock_guard lock(state_->mutex);
      if (!status.ok() && !state_->first_error.has_value()) state_->first_error = status.error();
    }
    // After the error is in its place: those it stops come second.
    if (!status.ok()) group_->rank(rank).Fail(status.error());
    {
      const std::lock_guard lock(state_->mutex);
      --state_->running;
    }
    state_->finished.notify_one();
  }
}

}  // namespace segue::comm
