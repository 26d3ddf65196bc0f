// What a worker knows about the outputs of a measurement and its measuring process must not: the
// expected ones. They are in memory that forked processes do not get. The process copies its
// outputs to a window, memory that it shares with the worker; the worker compares. One owner; used
// for one measurement after the other.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "deploy/support/status.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {

// Anonymous memory that lasts until the object ends.
class MappedBytes {
 public:
  enum class Fork { kShared, kWithheld };
  explicit MappedBytes(Fork fork) : fork_(fork) {}
  ~MappedBytes() { Release(); }
  MappedBytes(const MappedBytes&) = delete;
  MappedBytes& operator=(const MappedBytes&) = delete;

  // Makes room for `bytes`; what was there is lost if that needs other memory.
  // resource_exhausted (measure.check.memory).
  absl::Status Reserve(size_t bytes);
  char* data() const { return data_; }

 private:
  void Release();

  const Fork fork_;
  char* data_ = nullptr;
  size_t capacity_ = 0;
};

struct OutputVerdict {
  bool ok = true;
  std::string text;  // the first output that differs, and how
  double max_abs_error = 0;
};

class OutputJudge {
 public:
  // Takes over the expected outputs of the next measurement, overwrites the caller's copy, and
  // clears the window. Empty: nothing is compared. resource_exhausted (measure.check.memory).
  absl::Status Expect(std::string* expected);

  // For the measuring process: where its outputs go, one after the other, `size` bytes together.
  char* window() const { return window_.data(); }
  size_t size() const { return size_; }

  // Overwrites the window: what it holds later was written later.
  void Clear();

  // Compares the window, which holds `outputs`, with the expected outputs. invalid_argument
  // (runtime.result_check.size) if their sizes differ, data_loss (measure.check.outputs) if the
  // list makes no sense.
  absl::StatusOr<OutputVerdict> Compare(const v1::OutputList& outputs,
                                        const v1::Tolerance& tolerance) const;
  // The checks of `outputs` alone.
  absl::Status CheckList(const v1::OutputList& outputs) const;

 private:
  size_t size_ = 0;
  MappedBytes expected_{MappedBytes::Fork::kWithheld};
  MappedBytes window_{MappedBytes::Fork::kShared};
};

}  // namespace tilewright::device_agent
