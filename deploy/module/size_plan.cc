#include "deploy/module/size_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "deploy/module/found_vars.h"
#include "deploy/module/loops_check.h"
#include "deploy/support/dim_interval.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::module {
namespace {

using support::IntervalOf;
using support::SizeInterval;
using support::StrCat;

int64_t SaturatedSum(int64_t a, int64_t b) { return std::min(kMaxBytes, a + b); }

int64_t SaturatedProduct(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return kMaxBytes;
  return std::min(kMaxBytes, product);
}

int64_t AlignedEnd(const SizePlan::Place& place, int64_t alignment) {
  const int64_t end = SaturatedSum(place.offset, place.bytes);
  return (end + alignment - 1) / alignment * alignment;
}

int64_t BytesOf(const std::vector<int64_t>& shape, DType dtype) {
  int64_t bytes = DTypeBytes(dtype);
  for (const int64_t extent : shape) {
    if (extent == 0) return 0;
    bytes = SaturatedProduct(bytes, extent);
  }
  return bytes;
}

}  // namespace

SizePlanner::SizePlanner(const Manifest& manifest, const Function& function)
    : manifest_(manifest), found_(FoundVariables(manifest)) {
  AddTensors(function);
  prepare_ = CallsOf(function.prepare, StrCat("function ", function.name, ": prepare"));
  launches_ = CallsOf(function.launches, StrCat("function ", function.name, ": launch"));
  known_.clear();
}

template <typename Where>
SizePlanner::Term SizePlanner::TermOf(const Dim& dim, Where where) {
  if (dim.constant()) return {-1, *dim.constant()};
  const auto [known, added] =
      known_.try_emplace(dim.ToText(), static_cast<int>(expressions_.size()));
  if (added) {
    expressions_.push_back(dim);
    places_.push_back(where());
    std::vector<std::string>& names = found_in_.emplace_back();
    if (!found_.empty())
      std::ranges::set_intersection(dim.variables(), found_, std::back_inserter(names));
  }
  return {known->second, 0};
}

// The ends and operands of the function, and what their places depend on.
void SizePlanner::AddTensors(const Function& function) {
  std::vector<bool> needed(manifest_.tensors.size(), false);
  std::vector<int64_t> open;
  const auto need = [&](const std::vector<int64_t>& ids) {
    for (const int64_t id : ids) {
      if (needed[static_cast<size_t>(id)]) continue;
      needed[static_cast<size_t>(id)] = true;
      open.push_back(id);
    }
  };
  need(function.inputs);
  need(function.outputs);
  for (const SizeCheck& check : function.checks) need({check.tensor});
  need(LoopTensors(function));
  for (const auto* list : {&function.prepare, &function.launches}) {
    for (const Launch& launch : *list) need(launch.args);
  }
  while (!open.empty()) {
    const int64_t id = open.back();
    open.pop_back();
    need(manifest_.tensors[static_cast<size_t>(id)].after);
  }
  const auto add = [&](int64_t id) {
    const Tensor& tensor = manifest_.tensors[static_cast<size_t>(id)];
    if (!needed[static_cast<size_t>(id)]) return;
    TensorTerms& terms = tensors_.emplace_back();
    terms.id = id;
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      terms.shape.push_back(TermOf(tensor.shape[d], [&] {
        return StrCat("dimension ", d, " of tensor ", id, " '", tensor.name, "'");
      }));
    }
  };
  const std::optional<std::vector<int64_t>> order = PlacementOrder(manifest_);
  TW_CHECK(order.has_value()) << "a cycle of places";
  for (const int64_t id : *order) add(id);
  for (const Tensor& tensor : manifest_.tensors) {
    if (tensor.kind != TensorKind::kIntermediate) add(tensor.id);
  }
}

std::vector<SizePlanner::CallTerms> SizePlanner::CallsOf(const std::vector<Launch>& launches,
                                                         const std::string& where) {
  std::vector<CallTerms> calls;
  for (size_t i = 0; i < launches.size(); ++i) {
    CallTerms& call = calls.emplace_back();
    const auto at = [&] { return StrCat(where, " ", i, " (", launches[i].symbol, ")"); };
    for (const Dim& size : launches[i].sizes) call.sizes.push_back(TermOf(size, at));
    call.workspace = TermOf(launches[i].workspace_bytes, at);
  }
  return calls;
}

absl::StatusOr<std::vector<int64_t>> SizePlanner::Evaluate(
    std::span<const int64_t> values, const std::set<std::string>& missing) const {
  const Sizes sizes = SizesOf(manifest_, values);
  std::vector<int64_t> results;
  results.reserve(expressions_.size());
  for (size_t i = 0; i < expressions_.size(); ++i) {
    const bool open = std::ranges::any_of(
        found_in_[i], [&](const std::string& name) { return missing.contains(name); });
    TW_ASSIGN(const int64_t value, open ? MostOf(i, sizes, missing) : ValueOf(i, sizes));
    results.push_back(value);
  }
  return results;
}

absl::StatusOr<int64_t> SizePlanner::ValueOf(size_t expression, const Sizes& sizes) const {
  const absl::StatusOr<int64_t> value = expressions_[expression].Evaluate(sizes);
  if (value.ok() && *value >= 0) return *value;
  std::vector<std::string> at;
  for (const auto& [name, size] : sizes) at.push_back(StrCat(name, "=", size));
  return support::InvalidArgument(
      "module.sizes.dimension",
      StrCat(places_[expression], ": expected ", expressions_[expression].ToText(),
             " to be 0 to 2^63-1, found ", value.ok() ? StrCat(*value) : std::string("more"),
             " at ", support::Join(at, ",")));
}

// The largest number that the expression may be. Below 0 it is no size: a run that finds such sizes
// ends there.
absl::StatusOr<int64_t> SizePlanner::MostOf(size_t expression, const Sizes& sizes,
                                            const std::set<std::string>& missing) const {
  const auto range = [&](const std::string& name) {
    const auto var = std::ranges::find(manifest_.size_vars, name, &SizeVar::name);
    if (missing.contains(name)) return SizeInterval{var->min, var->max};
    return SizeInterval{sizes.at(name), sizes.at(name)};
  };
  const SizeInterval interval = IntervalOf(expressions_[expression], range);
  if (interval.known) return std::max<int64_t>(0, interval.high);
  return support::InvalidArgument(
      "module.sizes.dimension",
      StrCat(places_[expression], ": expected ", expressions_[expression].ToText(),
             " to be at most 2^63-1 for all sizes that a run finds"));
}

void SizePlanner::ShapeTensor(const TensorTerms& terms, const std::vector<int64_t>& values,
                              SizePlan::Place* place) const {
  place->shape.clear();
  for (const Term& term : terms.shape) place->shape.push_back(term.Value(values));
  place->bytes = BytesOf(place->shape, manifest_.tensors[static_cast<size_t>(terms.id)].dtype);
}

void SizePlanner::PlaceTensors(const std::vector<int64_t>& values, SizePlan* plan) const {
  plan->tensors.resize(manifest_.tensors.size());
  for (const TensorTerms& terms : tensors_) {
    const Tensor& tensor = manifest_.tensors[static_cast<size_t>(terms.id)];
    SizePlan::Place& place = plan->tensors[static_cast<size_t>(terms.id)];
    ShapeTensor(terms, values, &place);
    place.offset = tensor.offset;
    for (const int64_t id : tensor.after) {
      const SizePlan::Place& below = plan->tensors[static_cast<size_t>(id)];
      place.offset = std::max(place.offset, AlignedEnd(below, manifest_.alignment));
    }
    if (tensor.kind == TensorKind::kIntermediate) {
      plan->arena_bytes = std::max(plan->arena_bytes, SaturatedSum(place.offset, place.bytes));
    }
  }
}

void SizePlanner::PlanCalls(const std::vector<CallTerms>& terms, const std::vector<int64_t>& values,
                            std::vector<SizePlan::Call>* calls, int64_t* workspace_bytes) {
  calls->resize(terms.size());
  for (size_t i = 0; i < terms.size(); ++i) {
    SizePlan::Call& call = (*calls)[i];
    call.sizes.clear();
    for (const Term& term : terms[i].sizes) call.sizes.push_back(term.Value(values));
    call.workspace_bytes = std::min(kMaxBytes, terms[i].workspace.Value(values));
    *workspace_bytes = std::max(*workspace_bytes, call.workspace_bytes);
  }
}

absl::Status SizePlanner::Plan(std::span<const int64_t> values, SizePlan* plan) const {
  TW_CHECK(values.size() == manifest_.size_vars.size()) << values.size();
  TW_ASSIGN(const std::vector<int64_t> evaluated, Evaluate(values, found_));
  plan->arena_bytes = 0;
  plan->workspace_bytes = 0;
  PlaceTensors(evaluated, plan);
  PlanCalls(prepare_, evaluated, &plan->prepare, &plan->workspace_bytes);
  PlanCalls(launches_, evaluated, &plan->launches, &plan->workspace_bytes);
  return absl::OkStatus();
}

absl::Status SizePlanner::Resize(std::span<const int64_t> values, SizePlan* plan,
                                 const std::set<std::string>& missing) const {
  TW_ASSIGN(const std::vector<int64_t> evaluated, Evaluate(values, missing));
  for (const TensorTerms& terms : tensors_) {
    ShapeTensor(terms, evaluated, &plan->tensors[static_cast<size_t>(terms.id)]);
  }
  int64_t workspace_bytes = 0;
  PlanCalls(launches_, evaluated, &plan->launches, &workspace_bytes);
  return absl::OkStatus();
}

std::optional<std::vector<int64_t>> PlacementOrder(const Manifest& manifest) {
  std::vector<size_t> missing(manifest.tensors.size(), 0);  // of `after`, not placed yet
  std::vector<std::vector<int64_t>> users(manifest.tensors.size());
  std::vector<int64_t> order;
  size_t count = 0;
  for (const Tensor& tensor : manifest.tensors) {
    if (tensor.kind != TensorKind::kIntermediate) continue;
    ++count;
    missing[static_cast<size_t>(tensor.id)] = tensor.after.size();
    for (const int64_t id : tensor.after) users[static_cast<size_t>(id)].push_back(tensor.id);
    if (tensor.after.empty()) order.push_back(tensor.id);
  }
  for (size_t next = 0; next < order.size(); ++next) {
    for (const int64_t user : users[static_cast<size_t>(order[next])]) {
      if (--missing[static_cast<size_t>(user)] == 0) order.push_back(user);
    }
  }
  if (order.size() != count) return std::nullopt;
  return order;
}

std::vector<int64_t> MinimaOf(const Manifest& manifest, const Sizes& at) {
  std::vector<int64_t> values;
  for (const SizeVar& var : manifest.size_vars) {
    const auto set = at.find(var.name);
    values.push_back(set == at.end() ? var.min : set->second);
  }
  return values;
}

std::vector<int64_t> MaximaOf(const Manifest& manifest, const Sizes& at) {
  std::vector<int64_t> values;
  for (const SizeVar& var : manifest.size_vars) {
    const auto set = at.find(var.name);
    values.push_back(set == at.end() ? var.max : set->second);
  }
  return values;
}

std::vector<int64_t> ValuesOf(const Manifest& manifest, const Sizes& sizes) {
  std::vector<int64_t> values;
  for (const SizeVar& var : manifest.size_vars) values.push_back(sizes.at(var.name));
  return values;
}

Sizes SizesOf(const Manifest& manifest, std::span<const int64_t> values) {
  Sizes sizes;
  for (size_t v = 0; v < values.size(); ++v) sizes[manifest.size_vars[v].name] = values[v];
  return sizes;
}

absl::Status CheckEqualSizes(const Manifest& manifest, std::span<const int64_t> values,
                             const std::set<std::string>& left_out) {
  if (manifest.equal_sizes.empty()) return absl::OkStatus();
  const Sizes sizes = SizesOf(manifest, values);
  for (const SizeEquality& equal : manifest.equal_sizes) {
    const absl::StatusOr<int64_t> left = equal.left.Evaluate(sizes);
    const absl::StatusOr<int64_t> right = equal.right.Evaluate(sizes);
    if (left.ok() && right.ok() && *left == *right) continue;
    std::set<std::string> names = equal.left.variables();
    names.merge(equal.right.variables());
    const auto is_left_out = [&](const std::string& name) { return left_out.contains(name); };
    if (std::ranges::any_of(names, is_left_out)) continue;
    std::vector<std::string> at;
    for (const std::string& name : names) at.push_back(StrCat(name, "=", sizes.at(name)));
    const auto found = [](const absl::StatusOr<int64_t>& value) {
      return value.ok() ? StrCat(*value) : std::string("more than 64 bits hold");
    };
    return support::InvalidArgument(
        "module.sizes.unequal", StrCat(equal.what, ": expected sizes where ", equal.left.ToText(),
                                       " = ", equal.right.ToText(), ", found ", found(left),
                                       " and ", found(right), " at ", support::Join(at, ",")));
  }
  return absl::OkStatus();
}

int64_t PreparedBytes(const Manifest& manifest) {
  int64_t end = 0;
  if (!manifest.open_sizes()) return end;
  for (const Tensor& tensor : manifest.tensors) {
    if (tensor.kind == TensorKind::kPrepared) end = std::max(end, tensor.offset + tensor.bytes);
  }
  return end;
}

int64_t StateBytes(const Manifest& manifest, const Tensor& list) {
  const Sizes most = SizesOf(manifest, MaximaOf(manifest));
  std::vector<int64_t> shape = {most.at(manifest.state->length)};
  for (size_t d = 1; d < list.shape.size(); ++d) {
    shape.push_back(std::max<int64_t>(0, list.shape[d].Evaluate(most).value_or(kMaxBytes)));
  }
  return BytesOf(shape, list.dtype);
}

absl::Status SetNeedsAtMaxima(Manifest* manifest) {
  manifest->format_version = manifest->NeededFormatVersion();
  for (const Function& function : manifest->functions) {
    SizePlan plan;
    TW_TRY(SizePlanner(*manifest, function).Plan(MaximaOf(*manifest, function.at), &plan));
    manifest->arena_bytes = std::max(manifest->arena_bytes, plan.arena_bytes);
    manifest->workspace_bytes = std::max(manifest->workspace_bytes, plan.workspace_bytes);
    for (Tensor& tensor : manifest->tensors) {
      const SizePlan::Place& place = plan.tensors[static_cast<size_t>(tensor.id)];
      if (IsOpen(tensor.shape) && !place.shape.empty()) tensor.bytes = place.bytes;
    }
  }
  return absl::OkStatus();
}

}  // namespace tilewright::module
