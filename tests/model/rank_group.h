// A tensor-parallel group whose ranks are threads of the test.
#pragma once

#include <barrier>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "comm/communicator.h"

namespace segue::model {

// Sums in the order of the ranks, so that every rank gets the same bytes.
class RankGroup {
 public:
  explicit RankGroup(int size) : barrier_(size), views_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) ranks_.push_back(std::make_unique<Rank>(*this, rank));
  }

  // Runs `body(communicator)` as every rank, each in its own thread, and waits for all.
  template <typename Body>
  void Run(const Body& body) {
    std::vector<std::thread> threads;
    for (const auto& rank : ranks_) threads.emplace_back([&body, &rank] { body(*rank); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  class Rank final : public comm::Communicator {
   public:
    Rank(RankGroup& group, int rank) : group_(&group), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(group_->views_.size()); }
    Status AllReduceSum(const MatrixView& values, const Stream&) const override {
      group_->views_[static_cast<size_t>(rank_)] = values;
      group_->barrier_.arrive_and_wait();
      std::vector<float> sums(static_cast<size_t>(values.rows * values.cols));
      for (const MatrixView& view : group_->views_) {
        for (int64_t r = 0; r < values.rows; ++r) {
          for (int64_t c = 0; c < values.cols; ++c) {
            sums[static_cast<size_t>(r * values.cols + c)] += view.Row<float>(r)[c];
          }
        }
      }
      group_->barrier_.arrive_and_wait();
      for (int64_t r = 0; r < values.rows; ++r) {
        std::memcpy(values.Row<float>(r), sums.data() + r * values.cols,
                    static_cast<size_t>(values.cols) * sizeof(float));
      }
      return {};
    }

   private:
    RankGroup* group_;
    int rank_;
  };

  std::barrier<> barrier_;
  std::vector<MatrixView> views_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace segue::model
