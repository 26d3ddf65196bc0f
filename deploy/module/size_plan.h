// What the sizes of a call decide: shapes, places in the arena, scratch, sizes of launches. For
// given values of a module's size variables a planner works out all of it for one function, in
// microseconds. A module of fixed sizes is the constant case.
#ifndef DEPLOY_MODULE_SIZE_PLAN_H_
#define DEPLOY_MODULE_SIZE_PLAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/module/manifest.h"

namespace tilewright::module {

// Bytes and offsets are at most kMaxBytes: a sum that would be larger is kMaxBytes.
struct SizePlan {
  struct Place {
    std::vector<int64_t> shape;
    int64_t bytes = 0;
    int64_t offset = 0;  // as Tensor::offset, worked out for tensors with `after`
  };
  struct Call {
    std::vector<int64_t> sizes;
    int64_t workspace_bytes = 0;
  };
  std::vector<Place> tensors;  // by id; empty for tensors that the function has no use for
  std::vector<Call> prepare;   // by launch
  std::vector<Call> launches;
  int64_t arena_bytes = 0;      // end of the last intermediate
  int64_t workspace_bytes = 0;  // the largest need of a launch
};

// Const use is thread-safe.
class SizePlanner {
 public:
  // Both must outlive it. REQUIRES: references of tensors are in range and without a cycle.
  SizePlanner(const Manifest& manifest, const Function& function);

  // Overwrites `plan`. `values`: of the manifest's variables, in its order. Places are for all
  // sizes that a run may find (found_vars.h). INVALID_ARGUMENT
  // `module.sizes.dimension` if a dimension or a size is negative there, or larger than 64 bits;
  // the text names it.
  absl::Status Plan(std::span<const int64_t> values, SizePlan* plan) const;
  // Gives shapes and sizes their values at smaller sizes than those of the plan, which a run has
  // found, but for those in `missing`; places and needs stay. Vectors keep their memory. Errors as
  // Plan.
  absl::Status Resize(std::span<const int64_t> values, SizePlan* plan,
                      const std::set<std::string>& missing = {}) const;

 private:
  // A number, or the value of expressions_[expression].
  struct Term {
    int expression = -1;
    int64_t constant = 0;
    int64_t Value(const std::vector<int64_t>& values) const {
      return expression < 0 ? constant : values[static_cast<size_t>(expression)];
    }
  };
  struct TensorTerms {
    int64_t id = 0;
    std::vector<Term> shape;
  };
  struct CallTerms {
    std::vector<Term> sizes;
    Term workspace;
  };

  // `where()` says where the dimension occurs.
  template <typename Where>
  Term TermOf(const Dim& dim, Where where);
  void AddTensors(const Function& function);
  std::vector<CallTerms> CallsOf(const std::vector<Launch>& launches, const std::string& where);
  absl::StatusOr<std::vector<int64_t>> Evaluate(std::span<const int64_t> values,
                                                const std::set<std::string>& missing) const;
  absl::StatusOr<int64_t> ValueOf(size_t expression, const Sizes& sizes) const;
  absl::StatusOr<int64_t> MostOf(size_t expression, const Sizes& sizes,
                                 const std::set<std::string>& missing) const;
  void PlaceTensors(const std::vector<int64_t>& values, SizePlan* plan) const;
  void ShapeTensor(const TensorTerms& terms, const std::vector<int64_t>& values,
                   SizePlan::Place* place) const;
  static void PlanCalls(const std::vector<CallTerms>& terms, const std::vector<int64_t>& values,
                        std::vector<SizePlan::Call>* calls, int64_t* workspace_bytes);

  const Manifest& manifest_;
  const std::set<std::string> found_;  // FoundVariables
  std::map<std::string, int> known_;   // while it is made: expressions by their text
  std::vector<Dim> expressions_;       // each one once
  std::vector<std::string> places_;    // of an expression: where it occurs first, for messages
  std::vector<std::vector<std::string>> found_in_;  // of an expression: its names in found_
  std::vector<TensorTerms> tensors_;                // what `after` names comes first
  std::vector<CallTerms> prepare_;
  std::vector<CallTerms> launches_;
};

// Returns the ids of all intermediates, those that `after` names before those that name them;
// nullopt if there is a cycle. REQUIRES: `after` names intermediates.
std::optional<std::vector<int64_t>> PlacementOrder(const Manifest& manifest);

// Returns the values of the variables at their minima or maxima; of those that `at` names, what it
// says (Function::at).
std::vector<int64_t> MinimaOf(const Manifest& manifest, const Sizes& at = {});
std::vector<int64_t> MaximaOf(const Manifest& manifest, const Sizes& at = {});

// INVALID_ARGUMENT `module.sizes.unequal` if these values of the variables, in the manifest's
// order, are none of the module: they do not give the sizes that operators need to be equal.
// Those that `left_out` has a variable of are left out.
absl::Status CheckEqualSizes(const Manifest& manifest, std::span<const int64_t> values,
                             const std::set<std::string>& left_out = {});

// Returns the values, in the order of the variables. REQUIRES: `sizes` has all of them.
std::vector<int64_t> ValuesOf(const Manifest& manifest, const Sizes& sizes);

// The inverse. REQUIRES: a value per variable.
Sizes SizesOf(const Manifest& manifest, std::span<const int64_t> values);

// Returns the end of the region of prepared tensors in a module of open sizes; 0 in others, whose
// arena has them.
int64_t PreparedBytes(const Manifest& manifest);

// Returns the bytes of a list (Tensor::kind kState) with as many entries as fit, at the maxima of
// the other variables, at most kMaxBytes. REQUIRES: a manifest with state.
int64_t StateBytes(const Manifest& manifest, const Tensor& list);

// Completes a manifest with size variables whose `bytes`, `arena_bytes`, `workspace_bytes` and
// `format_version` are not set: needs at the maxima. INVALID_ARGUMENT as SizePlanner::Plan.
// REQUIRES: as SizePlanner.
absl::Status SetNeedsAtMaxima(Manifest* manifest);

}  // namespace tilewright::module

#endif  // DEPLOY_MODULE_SIZE_PLAN_H_
