// The two ends of a measurement on a session or device: inputs made from their specifications, and
// outputs held against the expected ones. The format of expected outputs (an artifact of its own,
// named by Measurement::expected_digest) is the outputs of the function in order, each as its raw
// little-endian row-major bytes, nothing between. Functions work on the caller's session and keep
// nothing.
#ifndef DEPLOY_RUNTIME_RESULT_CHECK_H_
#define DEPLOY_RUNTIME_RESULT_CHECK_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/module/manifest.h"
#include "deploy/runtime/compare.h"
#include "deploy/runtime/runtime.h"

namespace tilewright::runtime {

// Fills every input that `specs` names. INVALID_ARGUMENT for a tensor that is no input of the
// session's function.
absl::Status FillInputs(const std::vector<module::InputSpec>& specs, BoundTensors* session);

// The session's outputs in the format above.
std::string OutputBytes(const BoundTensors& session);

// One result per output, in order. INVALID_ARGUMENT `runtime.result_check.size` when `expected` has
// another size than the outputs together.
absl::StatusOr<std::vector<CompareResult>> CheckOutputs(const BoundTensors& session,
                                                        std::string_view expected,
                                                        const module::Tolerance& tolerance);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_RESULT_CHECK_H_
