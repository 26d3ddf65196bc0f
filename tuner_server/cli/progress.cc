#include "tuner_server/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "deploy/support/printable.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {
namespace {

constexpr int64_t kTerminalPeriodNs = 100'000'000;
constexpr int64_t kPlainPeriodNs = 5'000'000'000;
constexpr int64_t kTickPeriodNs = 1'000'000'000;
constexpr int kBarWidth = 24;

int TerminalWidth() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

}  // namespace

std::string DurationText(double seconds) {
  const int64_t s = static_cast<int64_t>(seconds + 0.5);
  char text[32];
  if (s >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", static_cast<long long>(s / 3600),
                  static_cast<long long>(s / 60 % 60), static_cast<long long>(s % 60));
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", static_cast<long long>(s / 60),
                  static_cast<long long>(s % 60));
  }
  return text;
}

std::string ProgressLine(const ProgressState& state, int width) {
  const double share =
      state.total > 0 ? std::clamp(static_cast<double>(state.done) / state.total, 0.0, 1.0) : 0.0;
  const int filled = static_cast<int>(share * kBarWidth + 0.5);
  std::string line = "[" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "] ";
  line += support::StrCat(state.done, "/", state.total, " ", state.unit);
  if (!state.best.empty()) line += "  " + state.best;
  line += "  " + DurationText(state.elapsed_s) + " elapsed";
  line += state.eta_s >= 0 ? "  ETA " + DurationText(state.eta_s) : "  ETA -";
  if (!state.note.empty()) line += "  " + state.note;
  line = support::Printable(line);
  // Cut at a character border: never in the middle of a UTF-8 sequence.
  int columns = 0;
  size_t end = 0;
  while (end < line.size() && columns < width) {
    ++end;
    while (end < line.size() && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) ++end;
    ++columns;
  }
  return line.substr(0, end);
}

ProgressState Later(ProgressState state, double seconds) {
  state.elapsed_s += seconds;
  if (state.eta_s >= 0) state.eta_s = std::max(0.0, state.eta_s - seconds);
  return state;
}

ProgressPrinter::ProgressPrinter(bool quiet)
    : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressPrinter::~ProgressPrinter() { Done(); }

void ProgressPrinter::Update(const ProgressState& state, int64_t now_ns) {
  const std::lock_guard guard(mutex_);
  last_state_ = state;
  last_update_ns_ = now_ns;
  Draw(state, now_ns);
}

void ProgressPrinter::Tick(int64_t now_ns) {
  const std::lock_guard guard(mutex_);
  if (!last_state_.running || now_ns - last_ns_ < kTickPeriodNs) return;
  Draw(Later(last_state_, static_cast<double>(now_ns - last_update_ns_) * 1e-9), now_ns);
}

void ProgressPrinter::Draw(const ProgressState& state, int64_t now_ns) {
  if (quiet_) return;
  const bool complete = state.total > 0 && state.done >= state.total && state.done != last_done_;
  const int64_t period = terminal_ ? kTerminalPeriodNs : kPlainPeriodNs;
  if (last_ns_ >= 0 && now_ns - last_ns_ < period && !complete) return;
  last_ns_ = now_ns;
  last_done_ = state.done;
  if (terminal_) {
    last_line_ = ProgressLine(state, TerminalWidth() - 1);
    std::fprintf(stderr, "\r\033[K%s", last_line_.c_str());
    drawn_ = true;
  } else {
    std::fprintf(stderr, "%s\n", ProgressLine(state, 200).c_str());
  }
  std::fflush(stderr);
}

void ProgressPrinter::Message(const std::string& text) {
  const std::lock_guard guard(mutex_);
  if (quiet_) return;
  if (drawn_) std::fputs("\r\033[K", stderr);
  PrintErr(text + "\n");
  if (drawn_) std::fputs(last_line_.c_str(), stderr);
  std::fflush(stderr);
}

void ProgressPrinter::Done() {
  const std::lock_guard guard(mutex_);
  if (!drawn_) return;
  std::fputc('\n', stderr);
  std::fflush(stderr);
  drawn_ = false;
}

void CountedProgress::Update(size_t done, size_t all, std::string note) {
  const int64_t now = clock_.NowNs();
  ProgressState state;
  state.done = static_cast<int64_t>(done);
  state.total = static_cast<int64_t>(all);
  state.elapsed_s = static_cast<double>(now - start_) * 1e-9;
  if (done > 0) {
    state.eta_s = state.elapsed_s / static_cast<double>(done) * static_cast<double>(all - done);
  }
  state.note = std::move(note);
  state.unit = unit_;
  state.running = true;
  printer_.Update(state, now);
}

}  // namespace tilewright::cli
