// The two ends of a measurement on a session or device: makes inputs from their specifications, and
// compares outputs with the expected ones. The expected outputs are an artifact of their own, named
// by Measurement::expected_digest: the outputs of the function in order, each as its raw
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

// Fills every input that `specs` names. INVALID_ARGUMENT if a tensor is not an input of the
// session's function.
absl::Status FillInputs(const std::vector<module::InputSpec>& specs, BoundTensors* session);

// Returns the session's outputs in the format above.
std::string OutputBytes(const BoundTensors& session);

// Returns one result per output, in order. INVALID_ARGUMENT `runtime.result_check.size` if the size
// of `expected` is not that of all outputs together.
absl::StatusOr<std::vector<CompareResult>> CheckOutputs(const BoundTensors& session,
                                                        std::string_view expected,
                                                        const module::Tolerance& tolerance);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_RESULT_CHECK_H_
