#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/console.h"

namespace segue::cli {
namespace {

constexpr int kDefaultColumns = 80;
constexpr int kMaxBarCells = 40;
constexpr int kMinBarCells = 10;
// A redraw every 100 ms looks smooth and costs nothing beside the slowest terminal.
constexpr std::chrono::milliseconds kBarInterval{100};
constexpr std::chrono::milliseconds kPlainInterval{1000};

int TerminalColumns() {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kDefaultColumns;
}

std::string Counter(const ProgressState& state) {
  std::string text;
  if (state.pictures > 1) text = Format("picture %d/%d  ", state.picture, state.pictures);
  return text + Format("step %d/%d", state.step, state.steps);
}

}  // namespace

std::string FormatSeconds(double seconds) {
  if (seconds < 10) return Format("%.1f s", seconds);
  const auto whole = static_cast<long long>(std::llround(std::min(seconds, 1e15)));
  if (whole < 60) return Format("%lld s", whole);
  if (whole < 3600) return Format("%lld min %02lld s", whole / 60, whole % 60);
  return Format("%lld h %02lld min", whole / 3600, whole % 3600 / 60);
}

std::string PlainProgress(const ProgressState& state) {
  return Counter(state) + Format("  %.3g s/step  ", state.seconds_per_step) +
         FormatSeconds(state.seconds_per_step * (state.steps - state.step)) + " left";
}

std::string BarProgress(const ProgressState& state, int columns) {
  std::string plain = PlainProgress(state);
  const int free = columns - static_cast<int>(plain.size()) - 3;  // "[" "]" and a blank
  if (free >= kMinBarCells && state.steps > 0) {
    const int cells = std::min(free, kMaxBarCells);
    const int full = static_cast<int>(int64_t{cells} * state.step / state.steps);
    return "[" + std::string(full, '#') + std::string(cells - full, '.') + "] " + plain;
  }
  if (static_cast<int>(plain.size()) <= columns) return plain;
  return Counter(state).substr(0, static_cast<size_t>(std::max(columns, 0)));
}

ProgressPrinter::Mode ProgressPrinter::ModeForStderr() {
  const char* terminal = std::getenv("TERM");
  const bool capable = terminal != nullptr && *terminal != '\0' && strcmp(terminal, "dumb") != 0;
  return isatty(STDERR_FILENO) == 1 && capable ? Mode::kBar : Mode::kPlain;
}

void ProgressPrinter::BeginPicture(int picture, int pictures) {
  state_ = {.picture = picture, .pictures = pictures};
  seconds_ = 0;
  printed_ = Clock::now();
}

bool ProgressPrinter::Due(bool last) {
  const Clock::time_point now = Clock::now();
  if (!last && now - printed_ < (mode_ == Mode::kBar ? kBarInterval : kPlainInterval)) return false;
  printed_ = now;
  return true;
}

void ProgressPrinter::Update(int step, int steps, double step_seconds) {
  if (mode_ == Mode::kQuiet) return;
  seconds_ += step_seconds;
  state_.step = step;
  state_.steps = steps;
  state_.seconds_per_step = step > 0 ? seconds_ / step : 0;
  if (!Due(step == steps)) return;
  if (mode_ == Mode::kPlain) {
    std::fprintf(stderr, "%s\n", PlainProgress(state_).c_str());
    return;
  }
  // The last column stays free: terminals differ in where the cursor goes after it.
  const std::string line = BarProgress(state_, TerminalColumns() - 1);
  const int width = static_cast<int>(line.size());
  std::fprintf(stderr, "\r%s%*s", line.c_str(), std::max(drawn_ - width, 0), "");
  std::fflush(stderr);
  drawn_ = width;
}

void ProgressPrinter::Clear() {
  if (drawn_ == 0) return;
  std::fprintf(stderr, "\r%*s\r", drawn_, "");
  std::fflush(stderr);
  drawn_ = 0;
}

}  // namespace segue::cli
