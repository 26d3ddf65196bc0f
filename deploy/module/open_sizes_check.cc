#include "deploy/module/open_sizes_check.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "deploy/module/found_vars.h"
#include "deploy/module/size_plan.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::module {
namespace {

using support::StrCat;

constexpr size_t kMaxVariables = 64;
constexpr size_t kMaxFunctions = 64;
constexpr size_t kMaxExpressions = 4096;
constexpr size_t kMaxExpressionText = 1024;
// Of a dimension of main that a specialisation fixes in part: it bounds the work of substitution.
constexpr size_t kMaxSubstitutedText = 256;

class OpenSizesCheck {
 public:
  explicit OpenSizesCheck(const Manifest& manifest) : m_(manifest) {
    for (const SizeVar& var : m_.size_vars) variables_.insert(var.name);
  }

  absl::Status Run() {
    if (m_.size_vars.size() > kMaxVariables)
      return BadManifest("size_var", "size_vars", "more than 64");
    if (m_.functions.size() > kMaxFunctions)
      return BadManifest("functions", "functions", "more than 64");
    if (m_.measurement) return BadManifest("measurement", "measurement", "expected fixed sizes");
    if (m_.FindFunction("main") == nullptr)
      return BadManifest("functions", "functions", "expected main");
    TW_TRY(Tensors());
    if (m_.state) TW_TRY(CheckDim(m_.state->next, "state.next"));
    TW_TRY(Equalities());
    if (!PlacementOrder(m_)) return BadManifest("after", "tensors", "a tensor begins after itself");
    for (size_t i = 0; i < m_.functions.size(); ++i) {
      TW_TRY(CheckFunction(m_.functions[i], StrCat("functions[", i, "]")));
    }
    return m_.state ? CheckState() : absl::OkStatus();
  }

 private:
  absl::Status CheckDim(const Dim& dim, const std::string& where);
  absl::Status Tensors();
  absl::Status CheckState();
  absl::Status Equalities();
  absl::Status CheckAfter(const Tensor& tensor, const std::string& where) const;
  absl::Status CheckFunction(const Function& function, const std::string& where);
  absl::Status CheckLaunches(const std::vector<Launch>& launches,
                             const std::set<std::string>& fixed, const std::string& where);
  absl::Status CheckBinding(const Function& function, const std::string& where) const;
  absl::Status CheckPrepare(const Function& function, const std::string& where);
  absl::Status CheckSpecialisation(const Function& function, const std::string& where);
  absl::Status CheckTwins(const std::vector<int64_t>& ids, const std::vector<int64_t>& of_main,
                          const std::map<std::string, Dim>& at, const std::string& where) const;
  bool AreTwins(const Tensor& own, const Tensor& of_main,
                const std::map<std::string, Dim>& at) const;
  static absl::Status Plan(const SizePlanner& planner, const std::vector<int64_t>& values,
                           const std::string& where, SizePlan* plan);
  absl::Status CheckNeeds(const Function& function, const std::string& where) const;
  absl::Status CheckFlops(const Function& function, const std::vector<int64_t>& values,
                          const std::string& where) const;

  const Tensor& TensorOf(int64_t id) const { return m_.tensors[static_cast<size_t>(id)]; }

  const Manifest& m_;
  std::set<std::string> variables_;
  std::set<std::string> expressions_;                   // checked
  std::map<int64_t, std::vector<const Launch*>> made_;  // prepared tensors, by whom
  std::set<Sizes> specialised_;
};

absl::Status OpenSizesCheck::CheckDim(const Dim& dim, const std::string& where) {
  if (dim.constant()) return absl::OkStatus();
  const std::string text = dim.ToText();
  if (!expressions_.insert(text).second) return absl::OkStatus();
  // The text is what a module keeps, so it has to give the same expression again.
  const absl::StatusOr<Dim> again =
      text.size() <= kMaxExpressionText ? Dim::Parse(text) : absl::StatusOr<Dim>(Dim());
  if (!again.ok() || *again != dim || expressions_.size() > kMaxExpressions) {
    return BadManifest("expression", where, "expected fewer or simpler expressions");
  }
  for (const std::string& name : dim.variables()) {
    if (!variables_.contains(name)) {
      return BadManifest("expression", where,
                         StrCat("unknown variable ", support::Quote(name, 64)));
    }
  }
  return absl::OkStatus();
}

absl::Status OpenSizesCheck::Tensors() {
  for (const Tensor& tensor : m_.tensors) {
    const std::string where = StrCat("tensors[", tensor.id, "]");
    for (const Dim& dim : tensor.shape) TW_TRY(CheckDim(dim, where));
    TW_TRY(CheckAfter(tensor, where));
    const bool fixed_kind =
        tensor.kind == TensorKind::kConstant || tensor.kind == TensorKind::kPrepared;
    if (fixed_kind && IsOpen(tensor.shape)) {
      return BadManifest("shape", where, "expected fixed sizes of this kind");
    }
  }
  return absl::OkStatus();
}

absl::Status OpenSizesCheck::CheckState() {
  const std::set<std::string> found = FoundVariables(m_);
  for (const std::string& name : m_.state->next.variables()) {
    if (!found.contains(name)) continue;
    return BadManifest("found_size", "state.next", StrCat("needs ", name, " before a run"));
  }
  return absl::OkStatus();
}

absl::Status OpenSizesCheck::Equalities() {
  for (size_t i = 0; i < m_.equal_sizes.size(); ++i) {
    const SizeEquality& equal = m_.equal_sizes[i];
    const std::string where = StrCat("equal_sizes[", i, "]");
    TW_TRY(CheckDim(equal.left, where));
    TW_TRY(CheckDim(equal.right, where));
    if ((equal.left - equal.right).constant() || equal.what.size() > kMaxExpressionText) {
      return BadManifest("equal_sizes", where, "expected what only some sizes make equal");
    }
  }
  return absl::OkStatus();
}

absl::Status OpenSizesCheck::CheckAfter(const Tensor& tensor, const std::string& where) const {
  if (tensor.after.empty()) return absl::OkStatus();
  if (tensor.kind != TensorKind::kIntermediate || tensor.offset != 0) {
    return BadManifest("after", where, "expected an intermediate with offset 0");
  }
  for (const int64_t id : tensor.after) {
    const bool known = id >= 0 && static_cast<size_t>(id) < m_.tensors.size();
    if (!known || TensorOf(id).kind != TensorKind::kIntermediate) {
      return BadManifest("after", where, StrCat("expected intermediates, found ", id));
    }
  }
  return absl::OkStatus();
}

absl::Status OpenSizesCheck::CheckFunction(const Function& function, const std::string& where) {
  if (!function.at.empty()) TW_TRY(CheckSpecialisation(function, where));
  std::set<std::string> fixed;
  for (const auto& [name, size] : function.at) fixed.insert(name);
  TW_TRY(CheckLaunches(function.prepare, variables_, StrCat(where, ".prepare")));
  TW_TRY(CheckLaunches(function.launches, fixed, StrCat(where, ".launches")));
  TW_TRY(CheckPrepare(function, where));
  for (const SizeCheck& check : function.checks) {
    for (const Dim& dim : check.expected) TW_TRY(CheckDim(dim, where + ".checks"));
  }
  TW_TRY(CheckFoundSizes(m_, function, where));
  TW_TRY(CheckBinding(function, where));
  return CheckNeeds(function, where);
}

// No size of the launches depends on a variable in `fixed`.
absl::Status OpenSizesCheck::CheckLaunches(const std::vector<Launch>& launches,
                                           const std::set<std::string>& fixed,
                                           const std::string& where) {
  const auto depends = [&](const Dim& dim) {
    if (fixed.empty() || dim.is_constant()) return false;
    return std::ranges::any_of(dim.variables(),
                               [&](const std::string& name) { return fixed.contains(name); });
  };
  for (size_t i = 0; i < launches.size(); ++i) {
    const Launch& launch = launches[i];
    const std::string at = StrCat(where, "[", i, "]");
    std::vector<Dim> dims = launch.sizes;
    dims.push_back(launch.workspace_bytes);
    if (launch.open_flops) dims.push_back(*launch.open_flops);
    for (const Dim& dim : dims) TW_TRY(CheckDim(dim, at));
    bool open = std::ranges::any_of(dims, depends);
    for (const int64_t id : launch.args) {
      open = open || std::ranges::any_of(TensorOf(id).shape, depends);
    }
    if (open) return BadManifest("at", at, "expected fixed sizes");
    if (launch.open_flops && (launch.flops != 0 || launch.open_flops->constant())) {
      return BadManifest("number", at, "expected flops as a number or as an expression");
    }
  }
  return absl::OkStatus();
}

// A call binds each variable that is not fixed from a dimension that is the variable itself, unless
// the run finds it.
absl::Status OpenSizesCheck::CheckBinding(const Function& function,
                                          const std::string& where) const {
  std::set<std::string> open = variables_;
  for (const auto& [name, size] : function.at) open.erase(name);
  for (const std::string& name : FoundVariables(m_)) open.erase(name);
  for (const int64_t id : function.inputs) {
    for (const Dim& dim : TensorOf(id).shape) open.erase(dim.variable());
  }
  if (m_.state) open.erase(m_.state->length);
  if (open.empty()) return absl::OkStatus();
  return BadManifest("size_var", where,
                     StrCat("expected ", *open.begin(), " alone as a dimension of an input"));
}

// Prepared tensors are made once for all functions, and nothing else is kept between runs.
absl::Status OpenSizesCheck::CheckPrepare(const Function& function, const std::string& where) {
  std::map<int64_t, std::vector<const Launch*>> made;
  for (const Launch& launch : function.prepare) {
    for (const int64_t id : launch.args) {
      const TensorKind kind = TensorOf(id).kind;
      if (kind == TensorKind::kInput || kind == TensorKind::kOutput) {
        return BadManifest("arg", where,
                           "a prepare launch of a module of open sizes uses no input");
      }
    }
    const auto first = launch.args.end() - launch.num_outputs;
    for (auto id = first; id != launch.args.end(); ++id) {
      if (TensorOf(*id).kind == TensorKind::kPrepared) made[*id].push_back(&launch);
    }
  }
  for (const Launch& launch : function.launches) {
    for (const int64_t id : launch.args) {
      if (TensorOf(id).kind != TensorKind::kPrepared || made.contains(id)) continue;
      return BadManifest("unprepared", where, StrCat("no prepare launch writes tensor ", id));
    }
  }
  const auto same = [](const Launch* a, const Launch* b) {
    return a->symbol == b->symbol && a->code == b->code;
  };
  for (const auto& [id, launches] : made) {
    const auto [earlier, added] = made_.emplace(id, launches);
    if (added || std::ranges::equal(earlier->second, launches, same)) continue;
    return BadManifest("prepared_twice", where,
                       StrCat("another function makes tensor ", id, " with other kernels"));
  }
  return absl::OkStatus();
}

absl::Status OpenSizesCheck::CheckSpecialisation(const Function& function,
                                                 const std::string& where) {
  if (function.name == "main") return BadManifest("at", where, "main is for all sizes");
  size_t known = 0;
  std::map<std::string, Dim> at;
  for (const SizeVar& var : m_.size_vars) {
    const auto size = function.at.find(var.name);
    if (size == function.at.end()) continue;
    if (size->second < var.min || size->second > var.max) {
      return BadManifest("at", where, StrCat("expected a value of ", var.name, " in its range"));
    }
    at.emplace(var.name, size->second);
    ++known;
  }
  if (function.at.size() != known) return BadManifest("at", where, "unknown variables");
  if (!specialised_.insert(function.at).second)
    return BadManifest("at", where, "expected sizes of its own");
  if (known == m_.size_vars.size()) {  // else a run checks its sizes
    const absl::Status equal = CheckEqualSizes(m_, MinimaOf(m_, function.at));
    if (!equal.ok()) return BadManifest("at", where, support::Detail(equal));
  }
  const Function& main = *m_.FindFunction("main");
  TW_TRY(CheckTwins(function.inputs, main.inputs, at, where + ".inputs"));
  return CheckTwins(function.outputs, main.outputs, at, where + ".outputs");
}

absl::Status OpenSizesCheck::CheckTwins(const std::vector<int64_t>& ids,
                                        const std::vector<int64_t>& of_main,
                                        const std::map<std::string, Dim>& at,
                                        const std::string& where) const {
  const auto same = [&](int64_t id, int64_t main_id) {
    return AreTwins(TensorOf(id), TensorOf(main_id), at);
  };
  if (std::ranges::equal(ids, of_main, same)) return absl::OkStatus();
  return BadManifest("at", where, "expected main's tensors at these sizes");
}

bool OpenSizesCheck::AreTwins(const Tensor& own, const Tensor& of_main,
                              const std::map<std::string, Dim>& at) const {
  const auto same = [&](const Dim& dim, const Dim& main_dim) {
    if (main_dim.is_constant()) return dim == main_dim;
    if (main_dim.ToText().size() > kMaxSubstitutedText) return false;
    return dim == main_dim.Substitute(at);
  };
  return own.name == of_main.name && own.dtype == of_main.dtype &&
         std::ranges::equal(own.shape, of_main.shape, same);
}

absl::Status OpenSizesCheck::Plan(const SizePlanner& planner, const std::vector<int64_t>& values,
                                  const std::string& where, SizePlan* plan) {
  const absl::Status planned = planner.Plan(values, plan);
  if (planned.ok()) return absl::OkStatus();
  return BadManifest("dimension", where, support::Detail(planned));
}

absl::Status OpenSizesCheck::CheckNeeds(const Function& function, const std::string& where) const {
  const SizePlanner planner(m_, function);
  SizePlan plan;
  const std::vector<int64_t> least = MinimaOf(m_, function.at);
  const std::vector<int64_t> most = MaximaOf(m_, function.at);
  if (least != most) {
    TW_TRY(Plan(planner, least, where, &plan));
    TW_TRY(CheckFlops(function, least, where));
  }
  TW_TRY(Plan(planner, most, where, &plan));
  TW_TRY(CheckFlops(function, most, where));
  if (plan.arena_bytes > m_.arena_bytes) {
    return BadManifest("size", "arena_bytes",
                       StrCat("expected ", plan.arena_bytes, " for ", where));
  }
  if (plan.workspace_bytes > m_.workspace_bytes) {
    return BadManifest("workspace", "workspace_bytes",
                       StrCat("expected ", plan.workspace_bytes, " for ", where));
  }
  for (const Tensor& tensor : m_.tensors) {
    if (!IsOpen(tensor.shape)) continue;
    const SizePlan::Place& place = plan.tensors[static_cast<size_t>(tensor.id)];
    if (place.shape.empty() || place.bytes == tensor.bytes) continue;
    return BadManifest("tensor_bytes", StrCat("tensors[", tensor.id, "]"),
                       StrCat("expected ", place.bytes, " at the maxima, found ", tensor.bytes));
  }
  return absl::OkStatus();
}

absl::Status OpenSizesCheck::CheckFlops(const Function& function,
                                        const std::vector<int64_t>& values,
                                        const std::string& where) const {
  const Sizes sizes = SizesOf(m_, values);
  const std::set<std::string> found = FoundVariables(m_);
  for (const Launch& launch : function.launches) {
    if (!launch.open_flops || DependsOn({*launch.open_flops}, found)) continue;
    const absl::StatusOr<int64_t> flops = launch.open_flops->Evaluate(sizes);
    if (!flops.ok() || *flops < 0) {
      return BadManifest("number", where, StrCat("flops of ", launch.symbol, ": expected >= 0"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOpenSizes(const Manifest& manifest) { return OpenSizesCheck(manifest).Run(); }

}  // namespace tilewright::module
