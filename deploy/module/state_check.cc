#include "deploy/module/state_check.h"

#include <algorithm>
#include <map>
#include <set>
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
    int64_t bytes = 0;
    for (const Tensor& tensor : m_.tensors) {
      if (tensor.kind != TensorKind::kState) {
        if (!tensor.entries_of && !tensor.same_list) continue;
        return Bad(Where(tensor.id), "expected lists and entries of kind state");
      }
      if (!tensor.is_own_list()) continue;
      TW_TRY(OwnList(tensor));
      bytes += StateBytes(m_, tensor);
      if (bytes > kMaxBytes) return Bad("state", StrCat("expected at most ", kMaxBytes, " bytes"));
    }
    const Dim count = state_.next - Dim::Variable(state_.length);
    if (count.variables().contains(state_.length)) {
      return Bad("state.next", "new entries depend on the length");
    }
    for (const Function& function : m_.functions) TW_TRY(StateOf(function));
    for (const Tensor& tensor : m_.tensors) {
      if (tensor.kind != TensorKind::kState || used_.contains(tensor.id)) continue;
      return Bad(Where(tensor.id), "no launch uses it");
    }
    return absl::OkStatus();
  }

 private:
  static std::string Where(int64_t tensor) { return StrCat("tensors[", tensor, "]"); }
  const Tensor& TensorOf(int64_t id) const { return m_.tensors[static_cast<size_t>(id)]; }
  bool IsList(int64_t id) const {
    return id >= 0 && static_cast<size_t>(id) < m_.tensors.size() &&
           TensorOf(id).kind == TensorKind::kState && !TensorOf(id).entries_of;
  }

  absl::Status OwnList(const Tensor& list) {
    if (list.shape.empty() || list.shape[0] != state_.next) {
      return Bad(Where(list.id), StrCat("expected ", state_.next.ToText(), " entries"));
    }
    const std::vector<Dim> entry(list.shape.begin() + 1, list.shape.end());
    if (Uses(entry, state_.length)) return Bad(Where(list.id), "entries depend on the length");
    // Open dimensions are whole multiples of the others.
    int64_t unit = DTypeBytes(list.dtype);
    for (const Dim& dim : entry) {
      unit = unit * (dim.constant().value_or(1) % kTensorAlignment) % kTensorAlignment;
    }
    if (unit != 0) {
      return Bad(Where(list.id),
                 StrCat("expected entries of a multiple of ", kTensorAlignment, " bytes"));
    }
    lists_.insert(list.id);
    return absl::OkStatus();
  }

  // A list that a function uses: one of its own in "main", elsewhere the same at other sizes.
  absl::Status ListOf(const Function& function, const std::map<std::string, Dim>& at,
                      const Tensor& list) {
    const bool main = function.at.empty();
    const int64_t of_main = list.same_list.value_or(list.id);
    if (main != list.is_own_list() || !lists_.contains(of_main)) {
      return Bad(Where(list.id), main ? "expected a list of main in main"
                                      : "expected the same list as one of main");
    }
    const Tensor& own = TensorOf(of_main);
    std::vector<Dim> shape = own.shape;
    for (Dim& dim : shape) dim = dim.Substitute(at);
    if (list.dtype == own.dtype && list.shape == shape) return absl::OkStatus();
    return Bad(Where(list.id),
               StrCat("expected ", support::DimsText(shape), " as the list of main"));
  }

  absl::Status Entries(const std::map<std::string, Dim>& at, const Tensor& entries) {
    const Tensor& list = TensorOf(*entries.entries_of);
    const Dim count = (state_.next - Dim::Variable(state_.length)).Substitute(at);
    const bool same =
        entries.dtype == list.dtype && entries.shape.size() == list.shape.size() &&
        !entries.shape.empty() && entries.shape[0] == count &&
        std::equal(entries.shape.begin() + 1, entries.shape.end(), list.shape.begin() + 1);
    if (same && !entries.same_list) return absl::OkStatus();
    return Bad(Where(entries.id),
               StrCat("expected ", count.ToText(), " entries of the list ", list.id));
  }

  absl::Status Argument(const Function& function, const std::map<std::string, Dim>& at,
                        const Tensor& tensor) {
    used_.insert(tensor.id);
    if (!tensor.entries_of) return ListOf(function, at, tensor);
    if (!IsList(*tensor.entries_of)) {
      return Bad(Where(tensor.id),
                 StrCat("expected entries of a list, found ", *tensor.entries_of));
    }
    used_.insert(*tensor.entries_of);
    TW_TRY(ListOf(function, at, TensorOf(*tensor.entries_of)));
    return Entries(at, tensor);
  }

  // Entries are written by one launch, and lists are read after that.
  absl::Status StateOf(const Function& function) {
    const std::map<std::string, Dim> at(function.at.begin(), function.at.end());
    for (const int64_t id : function.outputs) {
      if (Uses(TensorOf(id).shape, state_.length)) {
        return Bad(Where(id), "the output depends on the length of the state");
      }
    }
    for (const Launch& launch : function.prepare) {
      for (const int64_t id : launch.args) {
        if (TensorOf(id).kind == TensorKind::kState) {
          return Bad("prepare", "expected no state in prepare launches");
        }
      }
    }
    std::map<int64_t, int> written;  // by list of main
    for (size_t i = 0; i < function.launches.size(); ++i) {
      const Launch& launch = function.launches[i];
      const std::string where = StrCat("launches[", i, "]");
      const auto inputs = static_cast<size_t>(std::ssize(launch.args) - launch.num_outputs);
      for (size_t a = 0; a < launch.args.size(); ++a) {
        const Tensor& tensor = TensorOf(launch.args[a]);
        if (tensor.kind != TensorKind::kState) continue;
        TW_TRY(Argument(function, at, tensor));
        int& count = written[m_.ListOf(tensor)];
        if (a >= inputs && (!tensor.entries_of || ++count > 1)) {
          return Bad(where, "expected one launch that writes new entries");
        }
        if (a < inputs && count != 1) {
          return Bad(where, "reads a list before its new entries are there");
        }
      }
    }
    for (const int64_t list : lists_) {
      if (written[list] != 1) return Bad(Where(list), "no launch writes its new entries");
    }
    return absl::OkStatus();
  }

  const Manifest& m_;
  const State& state_;
  std::set<int64_t> lists_;  // of main
  std::set<int64_t> used_;   // tensors of the state
};

}  // namespace

absl::Status CheckState(const Manifest& manifest) {
  if (manifest.state) return StateCheck(manifest).Run();
  for (const Tensor& tensor : manifest.tensors) {
    if (tensor.kind == TensorKind::kState || tensor.entries_of || tensor.same_list) {
      return Bad(StrCat("tensors[", tensor.id, "]"), "the module has no state");
    }
  }
  return absl::OkStatus();
}

}  // namespace tilewright::module
