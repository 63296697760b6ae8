// What a person sees while a picture is made.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace segue::cli {

struct ProgressState {
  int picture = 1;  // of `pictures`, from 1
  int pictures = 1;
  int step = 0;  // steps done
  int steps = 0;
  double seconds_per_step = 0;  // mean of the steps done
};

// "0.8 s", "1 min 20 s", "2 h 05 min".
std::string FormatSeconds(double seconds);

// "step 5/20  0.052 s/step  0.8 s left", with "picture 2/4  " in front when there are several.
std::string PlainProgress(const ProgressState& state);

// The same with a bar, at most `columns` wide: parts that do not fit are left out, the bar first.
std::string BarProgress(const ProgressState& state, int columns);

// Writes progress to stderr: a bar redrawn in place on a terminal, else at most one plain line a
// second and one for the last step.
class ProgressPrinter {
 public:
  enum class Mode : uint8_t { kQuiet, kPlain, kBar };

  // kBar on a terminal that can return the carriage (TERM is set and not "dumb"), else kPlain.
  static Mode ModeForStderr();

  explicit ProgressPrinter(Mode mode) : mode_(mode) {}
  ~ProgressPrinter() { Clear(); }
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

  void BeginPicture(int picture, int pictures);
  void Update(int step, int steps, double step_seconds);
  // Takes the bar off the terminal, so that the next line begins at column 0.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool Due(bool last);

  Mode mode_;
  ProgressState state_;
  double seconds_ = 0;  // of this picture's steps
  int drawn_ = 0;       // columns on the terminal that Clear must blank
  Clock::time_point printed_;
};

}  // namespace segue::cli
