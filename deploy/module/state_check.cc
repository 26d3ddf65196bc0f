#include "deploy/module/state_check.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/module/open_sizes_check.h"
#include "deploy/module/size_plan.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::module {
namespace {

using support::StrCat;

bool Uses(const std::vector<Dim>& dims, const std::string& variable) {
  return std::ranges::any_of(dims,
                             [&](const Dim& dim) { return dim.variables().contains(variable); });
}

absl::Status Bad(std::string_view where, std::string_view detail) {
  return BadManifest("state", where, detail);
}

class StateCheck {
 public:
  explicit StateCheck(const Manifest& manifest) : m_(manifest), state_(*manifest.state) {}

  absl::Status Run() {
    const int v = m_.StateVariable();
    if (v < 0 || m_.size_vars[static_cast<size_t>(v)].min != 0 ||
        m_.size_vars[static_cast<size_t>(v)].max < 1) {
      return Bad("state.length", "expected a size variable from 0 on");
    }
    if (m_.functions.size() != 1) return Bad("functions", "expected main alone, which has state");
    int64_t bytes = 0;
    for (const Tensor& tensor : m_.tensors) {
      if (tensor.kind != TensorKind::kState) {
        if (!tensor.entries_of) continue;
        return Bad(StrCat("tensors[", tensor.id, "]"), "expected entries of kind state");
      }
      TW_TRY(tensor.entries_of ? Entries(tensor) : List(tensor));
      if (!tensor.entries_of) bytes += StateBytes(m_, tensor);
      if (bytes > kMaxBytes) return Bad("state", StrCat("expected at most ", kMaxBytes, " bytes"));
    }
    for (const auto& [list, count] : lists_) {
      if (count != 1) return Bad(StrCat("tensors[", list, "]"), "expected its new entries once");
    }
    return Launches(m_.functions[0]);
  }

 private:
  const Tensor& TensorOf(int64_t id) const { return m_.tensors[static_cast<size_t>(id)]; }

  absl::Status List(const Tensor& list) {
    const std::string where = StrCat("tensors[", list.id, "]");
    if (list.shape.empty() || list.shape[0] != state_.next) {
      return Bad(where, StrCat("expected ", state_.next.ToText(), " entries"));
    }
    const std::vector<Dim> entry(list.shape.begin() + 1, list.shape.end());
    if (Uses(entry, state_.length)) return Bad(where, "entries depend on the length");
    // Open dimensions are whole multiples of the others.
    int64_t unit = DTypeBytes(list.dtype);
    for (const Dim& dim : entry) {
      unit = unit * (dim.constant().value_or(1) % kTensorAlignment) % kTensorAlignment;
    }
    if (unit != 0) {
      return Bad(where, StrCat("expected entries of a multiple of ", kTensorAlignment, " bytes"));
    }
    lists_.try_emplace(list.id, 0);
    return absl::OkStatus();
  }

  absl::Status Entries(const Tensor& entries) {
    const std::string where = StrCat("tensors[", entries.id, "]");
    const int64_t id = *entries.entries_of;
    const bool known = id >= 0 && static_cast<size_t>(id) < m_.tensors.size();
    if (!known || TensorOf(id).kind != TensorKind::kState || TensorOf(id).entries_of) {
      return Bad(where, StrCat("expected entries of a list, found ", id));
    }
    const Tensor& list = TensorOf(id);
    const Dim count = state_.next - Dim::Variable(state_.length);
    const bool same =
        entries.dtype == list.dtype && entries.shape.size() == list.shape.size() &&
        !entries.shape.empty() && entries.shape[0] == count &&
        std::equal(entries.shape.begin() + 1, entries.shape.end(), list.shape.begin() + 1);
    if (!same || count.variables().contains(state_.length)) {
      return Bad(where, StrCat("expected ", count.ToText(), " entries of the list ", id));
    }
    ++lists_[id];
    return absl::OkStatus();
  }

  // Entries are written by one launch, and lists are read after that.
  absl::Status Launches(const Function& main) {
    for (const int64_t id : main.outputs) {
      if (Uses(TensorOf(id).shape, state_.length)) {
        return Bad(StrCat("tensors[", id, "]"), "the output depends on the length of the state");
      }
    }
    for (const Launch& launch : main.prepare) {
      for (const int64_t id : launch.args) {
        if (TensorOf(id).kind == TensorKind::kState) {
          return Bad("prepare", "expected no state in prepare launches");
        }
      }
    }
    std::map<int64_t, int> written;  // by list
    for (size_t i = 0; i < main.launches.size(); ++i) {
      const Launch& launch = main.launches[i];
      const auto inputs = static_cast<size_t>(std::ssize(launch.args) - launch.num_outputs);
      for (size_t a = 0; a < launch.args.size(); ++a) {
        const Tensor& tensor = TensorOf(launch.args[a]);
        if (tensor.kind != TensorKind::kState) continue;
        int& count = written[tensor.entries_of.value_or(tensor.id)];
        if (a >= inputs && (!tensor.entries_of || ++count > 1)) {
          return Bad(StrCat("launches[", i, "]"), "expected one launch that writes new entries");
        }
        if (a < inputs && count != 1) {
          return Bad(StrCat("launches[", i, "]"), "reads a list before its new entries are there");
        }
      }
    }
    for (const auto& [list, unused] : lists_) {
      if (written[list] != 1) {
        return Bad(StrCat("tensors[", list, "]"), "no launch writes its new entries");
      }
    }
    return absl::OkStatus();
  }

  const Manifest& m_;
  const State& state_;
  std::map<int64_t, int> lists_;  // list → tensors of its new entries
};

}  // namespace

absl::Status CheckState(const Manifest& manifest) {
  if (manifest.state) return StateCheck(manifest).Run();
  for (const Tensor& tensor : manifest.tensors) {
    if (tensor.kind == TensorKind::kState || tensor.entries_of) {
      return Bad(StrCat("tensors[", tensor.id, "]"), "the module has no state");
    }
  }
  return absl::OkStatus();
}

}  // namespace tilewright::module
