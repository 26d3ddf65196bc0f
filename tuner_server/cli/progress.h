// Progress of long work on standard error: one line redrawn in place on a terminal (bar, share,
// best so far, elapsed, ETA), plain lines at most every few seconds elsewhere. Printers are
// thread-safe: events and the clock update them from two threads.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "deploy/support/clock.h"

namespace tilewright::cli {

struct ProgressState {
  int64_t done = 0;
  int64_t total = 0;
  double elapsed_s = 0;
  double eta_s = -1;            // negative = unknown
  std::string best;             // "best 412 µs (1.9x)"
  std::string note;             // current task, state
  bool running = false;         // time counts
  std::string unit = "trials";  // what is counted
};

// Returns the line without control characters, at most `width` columns wide.
std::string ProgressLine(const ProgressState& state, int width);
// Returns the state `seconds` later, if only time has passed.
ProgressState Later(ProgressState state, double seconds);
// "1:05", "2:03:40"
std::string DurationText(double seconds);

class ProgressPrinter {
 public:
  // `quiet` prints nothing.
  explicit ProgressPrinter(bool quiet);
  ~ProgressPrinter();
  void Update(const ProgressState& state, int64_t now_ns);
  // Advances elapsed time and ETA since the last Update, while the work runs.
  void Tick(int64_t now_ns);
  // Prints a message on a line of its own, above the bar.
  void Message(const std::string& text);
  // Leaves the last state on the screen.
  void Done();

 private:
  void Draw(const ProgressState& state, int64_t now_ns);  // REQUIRES: mutex_ is held

  std::mutex mutex_;
  ProgressState last_state_;
  int64_t last_update_ns_ = -1;
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  int64_t last_ns_ = -1;
  int64_t last_done_ = -1;
  std::string last_line_;
};

// A bar of work whose parts take about the same time.
class CountedProgress {
 public:
  CountedProgress(std::string unit, bool quiet) : printer_(quiet), unit_(std::move(unit)) {}
  void Update(size_t done, size_t all, std::string note);
  void Done() { printer_.Done(); }

 private:
  support::SystemClock clock_;
  const int64_t start_ = clock_.NowNs();
  ProgressPrinter printer_;
  const std::string unit_;
};

}  // namespace tilewright::cli
