#include "deploy/module/loops_check.h"

#include <algorithm>
#include <optional>
#include <set>

#include "deploy/module/open_sizes_check.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::module {
namespace {

using support::StrCat;

// Of a function. Bounds the work of these checks, and of those that look for the loop of a launch.
constexpr size_t kMaxLoops = 4096;
// A run calls itself for a loop in a loop.
constexpr int kMaxDepth = 64;

// Views may have given one of two tensors another shape.
bool SameSize(const std::vector<Dim>& a, const std::vector<Dim>& b) {
  const std::optional<Dim> size = Dim::Product(a);
  return size && size == Dim::Product(b);
}

// Whether tensors of shape `part` fill `whole`, which other views of it may have given its shape.
bool IsStack(const std::vector<Dim>& whole, const std::vector<Dim>& part) {
  if (whole.empty()) return false;
  if (SameSize({whole.begin() + 1, whole.end()}, part)) return true;
  const std::optional<Dim> all = Dim::Product(whole), one = Dim::Product(part);
  return all && one && all->DivideExactly(*one);
}

class LoopsCheck {
 public:
  LoopsCheck(const Manifest& manifest, const Function& function, const std::string& where)
      : m_(manifest), f_(function), where_(where) {
    ends_ = {f_.inputs.begin(), f_.inputs.end()};
    ends_.insert(f_.outputs.begin(), f_.outputs.end());
    for (const SizeCheck& check : f_.checks) ends_.insert(check.tensor);
  }

  absl::Status Run() {
    at_ = StrCat(where_, ".loops");
    if (f_.loops.size() > kMaxLoops) return Bad(StrCat("expected at most ", kMaxLoops, " loops"));
    for (size_t i = 0; i < f_.loops.size(); ++i) {
      at_ = StrCat(where_, ".loops[", i, "]");
      TW_TRY(CheckNesting(i));
      TW_TRY(CheckTensors(f_.loops[i]));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Bad(const std::string& detail) const { return BadManifest("loop", at_, detail); }

  // Loops before this one are in it, or end where it begins or before.
  absl::Status CheckNesting(size_t i) {
    const Loop& loop = f_.loops[i];
    const auto launches = static_cast<int64_t>(f_.launches.size());
    if (loop.first < 0 || loop.first >= loop.end || loop.end > launches) {
      return Bad(StrCat("expected a range of the ", launches, " launches"));
    }
    int& depth = depths_.emplace_back(1);
    for (size_t j = 0; j < i; ++j) {
      const Loop& other = f_.loops[j];
      const bool inside = loop.first <= other.first && other.end <= loop.end;
      if (!inside && other.end > loop.first) return Bad("crosses another loop, or comes too late");
      if (inside) depth = std::max(depth, depths_[j] + 1);
    }
    if (depth <= kMaxDepth) return absl::OkStatus();
    return Bad(StrCat("expected at most ", kMaxDepth, " loops in each other"));
  }

  // Null for what a loop may not use.
  const Tensor* Find(int64_t id, bool writes) const {
    if (id < 0 || static_cast<size_t>(id) >= m_.tensors.size()) return nullptr;
    const Tensor& tensor = m_.tensors[static_cast<size_t>(id)];
    if (tensor.kind == TensorKind::kState) return nullptr;
    if (tensor.kind == TensorKind::kIntermediate) return &tensor;
    const bool end = tensor.kind == TensorKind::kInput || tensor.kind == TensorKind::kOutput;
    if (end && !ends_.contains(id)) return nullptr;
    return !writes || tensor.kind == TensorKind::kOutput ? &tensor : nullptr;
  }

  absl::Status CheckTensors(const Loop& loop) const {
    if (loop.carried.empty()) return Bad("expected a condition, found nothing carried");
    for (const Loop::Carried& carried : loop.carried) {
      const Tensor *init = Find(carried.init, false), *value = Find(carried.value, true),
                   *next = Find(carried.next, false);
      if (init == nullptr || value == nullptr || next == nullptr) {
        return Bad("expected tensors of the function, and one to write");
      }
      for (const Tensor* other : {init, next}) {
        if (other->dtype != value->dtype || !SameSize(other->shape, value->shape)) {
          return Bad(
              StrCat("expected one type and size, found tensors ", value->id, " and ", other->id));
        }
      }
    }
    const Tensor& going = m_.tensors[static_cast<size_t>(loop.carried[0].value)];
    if (going.dtype != DType::kBool || NumElements(going.shape) != 1) {
      return Bad("expected one bool as the first value");
    }
    for (const Loop::Stacked& stacked : loop.stacked) {
      const Tensor *part = Find(stacked.part, false), *whole = Find(stacked.whole, true);
      if (part == nullptr || whole == nullptr) {
        return Bad("expected tensors of the function, and one to write");
      }
      if (part == whole || whole->dtype != part->dtype || !IsStack(whole->shape, part->shape)) {
        return Bad(StrCat("expected a stack of tensors ", part->id, ", found ", whole->id));
      }
    }
    return absl::OkStatus();
  }

  const Manifest& m_;
  const Function& f_;
  const std::string& where_;
  std::string at_;
  std::vector<int> depths_;  // of the loops so far: how many are in each other
  std::set<int64_t> ends_;
};

}  // namespace

std::vector<int64_t> WrittenByLoops(const Function& function) {
  std::vector<int64_t> tensors;
  for (const Loop& loop : function.loops) {
    for (const Loop::Carried& carried : loop.carried) tensors.push_back(carried.value);
    for (const Loop::Stacked& stacked : loop.stacked) tensors.push_back(stacked.whole);
  }
  return tensors;
}

std::vector<int64_t> LoopTensors(const Function& function) {
  std::vector<int64_t> tensors = WrittenByLoops(function);
  for (const Loop& loop : function.loops) {
    for (const Loop::Carried& carried : loop.carried) {
      tensors.push_back(carried.init);
      tensors.push_back(carried.next);
    }
    for (const Loop::Stacked& stacked : loop.stacked) tensors.push_back(stacked.part);
  }
  return tensors;
}

int LoopAt(const Function& function, int64_t at, int64_t end, size_t limit) {
  for (size_t i = std::min(limit, function.loops.size()); i-- > 0;) {
    const Loop& loop = function.loops[i];
    if (loop.first == at && loop.end <= end) return static_cast<int>(i);
  }
  return -1;
}

absl::Status CheckLoops(const Manifest& manifest, const Function& function,
                        const std::string& where) {
  return LoopsCheck(manifest, function, where).Run();
}

}  // namespace tilewright::module
