// A tensor-parallel group whose ranks are threads of the test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "comm/group.h"

namespace segue::model {

class RankGroup {
 public:
  explicit RankGroup(int size) : group_(*comm::Group::OnHost(size)) {
    threads_ = *comm::RankThreads::Start(group_);
  }

  // Runs `body(communicator)` as every rank, each in its own thread, and waits for all.
  template <typename Body>
  void Run(const Body& body) {
    const Status status = threads_->Run([&](int rank) -> Status {
      body(group_.rank(rank));
      return {};
    });
    EXPECT_TRUE(status.ok()) << status.error().Message();
  }

 private:
  comm::Group group_;
  std::unique_ptr<comm::RankThreads> threads_;
};

}  // namespace segue::model
