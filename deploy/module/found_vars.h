// Sizes that a run finds: size variables that no input binds, such as how many elements a condition
// holds for. A check (SizeCheck) that expects the variable itself finds it, and the launches that
// need it follow the one that makes what the check looks at. In a loop each trip finds it anew, for
// that trip alone.
#ifndef DEPLOY_MODULE_FOUND_VARS_H_
#define DEPLOY_MODULE_FOUND_VARS_H_

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "deploy/module/manifest.h"

namespace tilewright::module {

struct FoundSize {
  size_t variable = 0;  // position in Manifest::size_vars
  size_t check = 0;     // of the function
  size_t element = 0;   // of what the check looks at
  size_t launch = 0;    // behind which the size is known: the last that writes there
};

// The variables that no input of "main" is, and that the state does not bind. REQUIRES: "main".
std::set<std::string> FoundVariables(const Manifest& manifest);

// Whether a shape depends on one of these variables.
bool DependsOn(const std::vector<Dim>& shape, const std::set<std::string>& variables);

// Where a function finds each of them; of several places the first.
std::vector<FoundSize> FoundSizes(const Manifest& manifest, const Function& function);

// Per check the innermost loop whose launches write what it looks at, each trip anew; -1 elsewhere.
std::vector<int> LoopsOfChecks(const Function& function);

// INVALID_ARGUMENT `module.manifest.size_var` if the function does not find all of them,
// `module.manifest.found_size` if something needs one too early, or behind the
// loop that finds it.
absl::Status CheckFoundSizes(const Manifest& manifest, const Function& function,
                             const std::string& where);

}  // namespace tilewright::module

#endif  // DEPLOY_MODULE_FOUND_VARS_H_
