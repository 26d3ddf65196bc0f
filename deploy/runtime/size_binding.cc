#include "deploy/runtime/size_binding.h"

#include "deploy/module/found_vars.h"
#include "deploy/module/size_plan.h"
#include "deploy/runtime/dl_tensor.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {
namespace {

using module::Dim;
using module::SizeVar;
using module::Tensor;
using support::InvalidArgument;
using support::StrCat;

constexpr int64_t kUnbound = -1;

}  // namespace

SizeBinding::SizeBinding(const module::Manifest& manifest, const module::Function& function)
    : manifest_(manifest), function_(function), found_(module::FoundVariables(manifest)) {
  for (size_t i = 0; i < function.inputs.size(); ++i) {
    std::vector<int>& variables = variables_.emplace_back();
    for (const Dim& dim : Input(i).shape) {
      variables.push_back(VariableOf(dim));
      expressions_ = expressions_ || (!dim.constant() && variables.back() < 0);
    }
  }
}

const Tensor& SizeBinding::Input(size_t input) const {
  return manifest_.tensors[static_cast<size_t>(function_.inputs[input])];
}

int SizeBinding::VariableOf(const Dim& dim) const {
  const std::string name = dim.variable();
  for (size_t v = 0; v < manifest_.size_vars.size() && !name.empty(); ++v) {
    if (manifest_.size_vars[v].name == name) return static_cast<int>(v);
  }
  return -1;
}

absl::Status SizeBinding::Mismatch(size_t input, size_t dimension, std::string_view expected,
                                   int64_t found) const {
  const Tensor& tensor = Input(input);
  const Dim& dim = tensor.shape[dimension];
  return InvalidArgument("runtime.session.size",
                         StrCat("input '", tensor.name, "': dimension ", dimension, " (",
                                dim.ToText(), "): expected ", expected, ", found ", found));
}

absl::Status SizeBinding::CheckInput(size_t input, std::span<const int64_t> shape) const {
  const Tensor& tensor = Input(input);
  bool fits = shape.size() == tensor.shape.size();
  for (size_t d = 0; fits && d < shape.size(); ++d) {
    fits = shape[d] >= 0 && tensor.shape[d].constant().value_or(shape[d]) == shape[d];
  }
  if (!fits) {
    return InvalidArgument("runtime.c_api.shape",
                           StrCat("input '", tensor.name, "': expected ",
                                  module::ShapeText(tensor.shape), ", found ", ExtentsText(shape)));
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    if (variables_[input][d] < 0) continue;
    const SizeVar& var = manifest_.size_vars[static_cast<size_t>(variables_[input][d])];
    if (shape[d] >= var.min && shape[d] <= var.max) continue;
    return Mismatch(input, d, StrCat(var.min, " to ", var.max), shape[d]);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> SizeBinding::Bind(std::span<const Shape> shapes,
                                                       std::optional<int64_t> entries) const {
  for (size_t i = 0; i < shapes.size(); ++i) TW_TRY(CheckInput(i, shapes[i]));
  std::vector<int64_t> values(manifest_.size_vars.size(), kUnbound);
  for (size_t v = 0; v < values.size(); ++v) {
    const SizeVar& var = manifest_.size_vars[v];
    const auto fixed = function_.at.find(var.name);
    if (fixed != function_.at.end()) values[v] = fixed->second;
    if (found_.contains(var.name)) values[v] = var.max;
  }
  std::vector<size_t> bound_by(values.size(), 0);
  const int of_state = manifest_.StateVariable();
  if (of_state >= 0) values[static_cast<size_t>(of_state)] = entries.value_or(0);
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (size_t d = 0; d < shapes[i].size(); ++d) {
      if (variables_[i][d] < 0) continue;
      const auto v = static_cast<size_t>(variables_[i][d]);
      if (values[v] == kUnbound) {
        values[v] = shapes[i][d];
        bound_by[v] = i;
      }
      if (values[v] == shapes[i][d] || (variables_[i][d] == of_state && !entries)) continue;
      if (variables_[i][d] == of_state) {
        return Mismatch(i, d, StrCat(*entries, " entries of the state"), shapes[i][d]);
      }
      return Mismatch(i, d, StrCat(values[v], " as in input '", Input(bound_by[v]).name, "'"),
                      shapes[i][d]);
    }
  }
  if (expressions_) TW_TRY(CheckExpressions(shapes, values, entries.has_value()));
  TW_TRY(module::CheckEqualSizes(manifest_, values, found_));
  return values;
}

absl::Status SizeBinding::CheckExpressions(std::span<const Shape> shapes,
                                           const std::vector<int64_t>& values,
                                           bool state_known) const {
  const module::Sizes sizes = module::SizesOf(manifest_, values);
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (size_t d = 0; d < shapes[i].size(); ++d) {
      const Dim& dim = Input(i).shape[d];
      if (dim.constant() || variables_[i][d] >= 0) continue;
      const bool of_state = manifest_.state && dim.variables().contains(manifest_.state->length);
      if (of_state && !state_known) continue;
      TW_ASSIGN(const int64_t expected, dim.Evaluate(sizes));
      if (expected == shapes[i][d]) continue;
      std::vector<std::string> at;
      for (const std::string& name : dim.variables())
        at.push_back(StrCat(name, "=", sizes.at(name)));
      return Mismatch(i, d, StrCat(expected, " at ", support::Join(at, ",")), shapes[i][d]);
    }
  }
  return absl::OkStatus();
}

}  // namespace tilewright::runtime
