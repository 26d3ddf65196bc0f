#include "device_agent/output_judge.h"

#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "deploy/module/dtype.h"
#include "deploy/runtime/compare.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;

constexpr size_t kPage = 4096;
// Memory that a large task needed is given back when it is so much more than the next one needs.
constexpr size_t kSpareBytes = size_t{64} << 20;
constexpr int kClear = 0xFF;  // NaN of floats

}  // namespace

absl::Status MappedBytes::Reserve(size_t bytes) {
  if (bytes <= capacity_ && capacity_ <= bytes + kSpareBytes) return absl::OkStatus();
  Release();
  const size_t capacity = (bytes + kPage - 1) / kPage * kPage;
  const int sharing = fork_ == Fork::kShared ? MAP_SHARED : MAP_PRIVATE;
  void* memory = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return support::ResourceExhausted("measure.check.memory",
                                      StrCat("no memory for ", bytes, " bytes of outputs"));
  }
  data_ = static_cast<char*>(memory);
  capacity_ = capacity;
  if (fork_ == Fork::kWithheld && madvise(memory, capacity, MADV_DONTFORK) != 0) {
    return support::ErrnoError(errno, "measure.check.memory", "expected outputs");
  }
  return absl::OkStatus();
}

void MappedBytes::Release() {
  if (data_ != nullptr) munmap(data_, capacity_);
  data_ = nullptr;
  capacity_ = 0;
}

absl::Status OutputJudge::Expect(std::string* expected) {
  size_ = 0;
  if (expected->empty()) return absl::OkStatus();
  TW_TRY(expected_.Reserve(expected->size()));
  TW_TRY(window_.Reserve(expected->size()));
  size_ = expected->size();
  memcpy(expected_.data(), expected->data(), size_);
  explicit_bzero(expected->data(), size_);
  expected->clear();
  Clear();  // the last measurement's outputs are there, which may be those that are expected
  return absl::OkStatus();
}

void OutputJudge::Clear() {
  if (size_ > 0) memset(window_.data(), kClear, size_);
}

absl::Status OutputJudge::CheckList(const v1::OutputList& outputs) const {
  const auto nonsense = [](const std::string& why) {
    return support::DataLoss("measure.check.outputs", why);
  };
  if (outputs.dtypes_size() != outputs.bytes_size()) return nonsense("types and sizes differ");
  uint64_t total = 0;
  for (int i = 0; i < outputs.dtypes_size(); ++i) {
    const auto dtype = module::DTypeFromName(outputs.dtypes(i));
    const int64_t bytes = outputs.bytes(i);
    if (!dtype.has_value()) return nonsense("no type: " + support::Quote(outputs.dtypes(i), 40));
    if (bytes < 0 || bytes > (int64_t{1} << 40) || bytes % module::DTypeBytes(*dtype) != 0) {
      return nonsense(StrCat("output ", i, " of ", bytes, " bytes"));
    }
    total += static_cast<uint64_t>(bytes);
  }
  if (size_ == 0 || total == size_) return absl::OkStatus();
  return support::InvalidArgument(
      "runtime.result_check.size",
      StrCat("expected outputs: expected ", total, " bytes, found ", size_));
}

absl::StatusOr<OutputVerdict> OutputJudge::Compare(const v1::OutputList& outputs,
                                                   const v1::Tolerance& tolerance) const {
  OutputVerdict verdict;
  if (size_ == 0) return verdict;
  TW_TRY(CheckList(outputs));
  const char* actual = window_.data();
  const char* expected = expected_.data();
  int64_t mismatches = 0;
  int64_t count = 0;
  for (int i = 0; i < outputs.dtypes_size(); ++i) {
    const module::DType dtype = *module::DTypeFromName(outputs.dtypes(i));
    const runtime::CompareResult output = runtime::CompareTensors(
        dtype, actual, expected, outputs.bytes(i) / module::DTypeBytes(dtype),
        {tolerance.abs(), tolerance.rel()});
    mismatches += output.mismatches;
    count += output.count;
    verdict.max_abs_error = std::max(verdict.max_abs_error, output.max_abs_diff);
    if (!output.ok() && verdict.text.empty()) {
      verdict.text = StrCat("output ", i, ": ", runtime::CompareText(output));
    }
    actual += outputs.bytes(i);
    expected += outputs.bytes(i);
  }
  const double allowed = tolerance.max_mismatch_fraction();
  verdict.ok = static_cast<double>(mismatches) <= allowed * static_cast<double>(count);
  return verdict;
}

}  // namespace tilewright::device_agent
