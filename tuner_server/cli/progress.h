// Progress of long work on standard error: one line redrawn in place on a terminal (bar, share,
// best so far, elapsed, ETA), plain lines at most every few seconds elsewhere. One owner.
#pragma once

#include <cstdint>
#include <string>

namespace tilewright::cli {

struct ProgressState {
  int64_t done = 0;
  int64_t total = 0;
  double elapsed_s = 0;
  double eta_s = -1;  // negative = unknown
  std::string best;   // "best 412 µs (1.9x)"
  std::string note;   // current task, state
};

// The line without control characters; `width` is the room there is.
std::string ProgressLine(const ProgressState& state, int width);
// "1:05", "2:03:40"
std::string DurationText(double seconds);

class ProgressPrinter {
 public:
  // `quiet` prints nothing.
  explicit ProgressPrinter(bool quiet);
  ~ProgressPrinter();
  void Update(const ProgressState& state, int64_t now_ns);
  // A message of its own line, without destroying the bar.
  void Message(const std::string& text);
  // Leaves the last state on the screen.
  void Done();

 private:
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  int64_t last_ns_ = -1;
  int64_t last_done_ = -1;
  std::string last_line_;
};

}  // namespace tilewright::cli
