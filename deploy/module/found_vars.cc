#include "deploy/module/found_vars.h"

#include <algorithm>
#include <map>
#include <optional>

#include "deploy/module/loops_check.h"
#include "deploy/module/open_sizes_check.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::module {
namespace {

using support::StrCat;

const Tensor& TensorOf(const Manifest& manifest, int64_t id) {
  return manifest.tensors[static_cast<size_t>(id)];
}

// The last launch that writes the tensor.
std::optional<size_t> WriterOf(const Function& function, int64_t tensor) {
  for (size_t i = function.launches.size(); i-- > 0;) {
    const Launch& launch = function.launches[i];
    const auto first = launch.args.end() - launch.num_outputs;
    if (std::find(first, launch.args.end(), tensor) != launch.args.end()) return i;
  }
  return std::nullopt;
}

std::set<std::string> VariablesOf(const Manifest& manifest, const Launch& launch) {
  std::set<std::string> names;
  const auto add = [&](const Dim& dim) {
    if (!dim.is_constant()) names.merge(dim.variables());
  };
  for (const Dim& size : launch.sizes) add(size);
  add(launch.workspace_bytes);
  for (const int64_t id : launch.args) {
    for (const Dim& dim : TensorOf(manifest, id).shape) add(dim);
  }
  return names;
}

}  // namespace

std::set<std::string> FoundVariables(const Manifest& manifest) {
  std::set<std::string> names;
  for (const SizeVar& var : manifest.size_vars) names.insert(var.name);
  if (names.empty()) return names;
  for (const int64_t id : manifest.FindFunction("main")->inputs) {
    for (const Dim& dim : TensorOf(manifest, id).shape) names.erase(dim.variable());
  }
  if (manifest.state) names.erase(manifest.state->length);
  return names;
}

bool DependsOn(const std::vector<Dim>& shape, const std::set<std::string>& variables) {
  return std::ranges::any_of(shape, [&](const Dim& dim) {
    if (dim.is_constant()) return false;
    const std::set<std::string> names = dim.variables();
    return std::ranges::any_of(names, [&](const auto& name) { return variables.contains(name); });
  });
}

std::vector<FoundSize> FoundSizes(const Manifest& manifest, const Function& function) {
  std::vector<FoundSize> found;
  for (const std::string& name : FoundVariables(manifest)) {
    for (size_t i = 0; i < function.checks.size(); ++i) {
      const SizeCheck& check = function.checks[i];
      const auto place = std::ranges::find_if(
          check.expected, [&](const Dim& dim) { return dim.variable() == name; });
      const std::optional<size_t> launch = WriterOf(function, check.tensor);
      if (place == check.expected.end() || !launch) continue;
      const auto variable = std::ranges::find(manifest.size_vars, name, &SizeVar::name);
      found.push_back({static_cast<size_t>(variable - manifest.size_vars.begin()), i,
                       static_cast<size_t>(place - check.expected.begin()), *launch});
      break;
    }
  }
  return found;
}

namespace {

// The innermost loop that holds the launch; of the list's end without one.
std::vector<Loop>::const_iterator LoopAround(const Function& function, size_t launch) {
  return std::ranges::find_if(function.loops, [&](const Loop& loop) {
    return loop.first <= static_cast<int64_t>(launch) && static_cast<int64_t>(launch) < loop.end;
  });
}

// What a loop finds, by variable: nothing behind it, and nothing that it carries or stacks, has a
// size of this name.
absl::Status CheckFoundInLoops(const Manifest& manifest, const Function& function,
                               const std::map<std::string, size_t>& known,
                               const std::string& where) {
  std::set<std::string> of_trips;
  for (const auto& [name, launch] : known) {
    const auto loop = LoopAround(function, launch);
    if (loop == function.loops.end()) continue;
    of_trips.insert(name);
    for (size_t i = launch + 1; i < function.launches.size(); ++i) {
      if (static_cast<int64_t>(i) < loop->end) continue;
      if (!VariablesOf(manifest, function.launches[i]).contains(name)) continue;
      return BadManifest("found_size", StrCat(where, ".launches[", i, "]"),
                         StrCat("needs ", name, " behind the loop that finds it"));
    }
  }
  std::vector<int64_t> outside = function.outputs;
  const std::vector<int64_t> written = WrittenByLoops(function);
  outside.insert(outside.end(), written.begin(), written.end());
  for (const int64_t id : outside) {
    if (!DependsOn(TensorOf(manifest, id).shape, of_trips)) continue;
    return BadManifest("found_size", where,
                       StrCat("tensor ", id, " leaves a loop and has a size that a trip finds"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int> LoopsOfChecks(const Function& function) {
  std::vector<int> loops(function.checks.size(), -1);
  if (function.loops.empty()) return loops;
  for (size_t i = 0; i < loops.size(); ++i) {
    const std::optional<size_t> launch = WriterOf(function, function.checks[i].tensor);
    if (!launch) continue;
    const auto loop = LoopAround(function, *launch);
    if (loop != function.loops.end()) loops[i] = static_cast<int>(loop - function.loops.begin());
  }
  return loops;
}

absl::Status CheckFoundSizes(const Manifest& manifest, const Function& function,
                             const std::string& where) {
  const std::set<std::string> names = FoundVariables(manifest);
  if (names.empty()) return absl::OkStatus();
  std::map<std::string, size_t> known;  // behind which launch
  for (const FoundSize& found : FoundSizes(manifest, function)) {
    known[manifest.size_vars[found.variable].name] = found.launch;
  }
  for (const std::string& name : names) {
    if (known.contains(name) && !function.at.contains(name)) continue;
    return BadManifest("size_var", where,
                       StrCat("expected ", name,
                              " alone as a dimension of an input, or a check "
                              "that finds it"));
  }
  for (const int64_t id : function.inputs) {
    for (const Dim& dim : TensorOf(manifest, id).shape) {
      for (const std::string& name : dim.variables()) {
        if (names.contains(name))
          return BadManifest("found_size", where, "an input has a size that a run finds");
      }
    }
  }
  for (size_t i = 0; i < function.launches.size(); ++i) {
    for (const std::string& name : VariablesOf(manifest, function.launches[i])) {
      const auto launch = known.find(name);
      if (launch == known.end() || launch->second < i) continue;
      return BadManifest("found_size", StrCat(where, ".launches[", i, "]"),
                         StrCat("needs ", name, " before it is found"));
    }
  }
  return CheckFoundInLoops(manifest, function, known, where);
}

}  // namespace tilewright::module
