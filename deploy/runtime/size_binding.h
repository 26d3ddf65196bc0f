// The values of a module's size variables from the shapes of a call's inputs. Const use is
// thread-safe.
#ifndef DEPLOY_RUNTIME_SIZE_BINDING_H_
#define DEPLOY_RUNTIME_SIZE_BINDING_H_

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/module/manifest.h"

namespace tilewright::runtime {

using Shape = std::vector<int64_t>;

class SizeBinding {
 public:
  // Of a function's inputs. Both must outlive it. Of a specialisation, `at` has the values of the
  // variables that it names.
  SizeBinding(const module::Manifest& manifest, const module::Function& function);

  // Whether an input may have a shape, on its own. INVALID_ARGUMENT
  // `runtime.c_api.shape` (a fixed dimension or the rank differs), `runtime.session.size` (a
  // variable is out of its range): the text names input, dimension, found and allowed.
  absl::Status CheckInput(size_t input, std::span<const int64_t> shape) const;

  // Returns the values of the variables, in the manifest's order, from a shape for each input. The
  // errors of CheckInput; `runtime.session.size` also if two dimensions disagree;
  // `module.sizes.unequal` as CheckEqualSizes. A state's variable is `entries`; where that is not
  // known, it is 0 here and no dimension is checked against it. What a run finds has its maximum.
  absl::StatusOr<std::vector<int64_t>> Bind(std::span<const Shape> shapes,
                                            std::optional<int64_t> entries = {}) const;

 private:
  const module::Tensor& Input(size_t input) const;
  // Position of the variable that the dimension is; -1 for others.
  int VariableOf(const module::Dim& dim) const;
  absl::Status Mismatch(size_t input, size_t dimension, std::string_view expected,
                        int64_t found) const;
  absl::Status CheckExpressions(std::span<const Shape> shapes, const std::vector<int64_t>& values,
                                bool state_known) const;

  const module::Manifest& manifest_;
  const module::Function& function_;
  std::vector<std::vector<int>> variables_;  // VariableOf, by input and dimension
  const std::set<std::string> found_;        // module::FoundVariables
  bool expressions_ = false;                 // whether a dimension is more than a variable
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_SIZE_BINDING_H_
