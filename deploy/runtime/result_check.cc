#include "deploy/runtime/result_check.h"

#include <algorithm>

#include "deploy/runtime/input_gen.h"
#include "deploy/support/status.h"

namespace tilewright::runtime {

absl::Status FillInputs(const std::vector<module::InputSpec>& specs, BoundTensors* session) {
  const std::vector<int64_t>& ids = session->function().inputs;
  for (const module::InputSpec& spec : specs) {
    const auto it = std::find(ids.begin(), ids.end(), spec.tensor);
    if (it == ids.end()) {
      return support::InvalidArgument(
          "runtime.result_check.input",
          "tensor " + std::to_string(spec.tensor) + " is no input of the function");
    }
    const auto index = static_cast<size_t>(it - ids.begin());
    const module::Tensor& tensor = *session->input(index).tensor;
    TW_TRY(GenerateInput(tensor.dtype, tensor.bytes / module::DTypeBytes(tensor.dtype),
                         spec.distribution, spec.seed, session->MutableInput(index)));
  }
  return absl::OkStatus();
}

std::string OutputBytes(const BoundTensors& session) {
  std::string out;
  for (size_t i = 0; i < session.num_outputs(); ++i) {
    const TensorView view = session.output(i);
    out.append(static_cast<const char*>(view.data), view.bytes);
  }
  return out;
}

absl::StatusOr<std::vector<CompareResult>> CheckOutputs(const BoundTensors& session,
                                                        std::string_view expected,
                                                        const module::Tolerance& tolerance) {
  size_t total = 0;
  for (size_t i = 0; i < session.num_outputs(); ++i) total += session.output(i).bytes;
  if (expected.size() != total) {
    return support::InvalidArgument("runtime.result_check.size",
                                    "expected outputs: expected " + std::to_string(total) +
                                        " bytes, found " + std::to_string(expected.size()));
  }
  std::vector<CompareResult> results;
  for (size_t i = 0; i < session.num_outputs(); ++i) {
    const TensorView view = session.output(i);
    const module::DType dtype = view.tensor->dtype;
    const auto count = static_cast<int64_t>(view.bytes) / module::DTypeBytes(dtype);
    results.push_back(CompareTensors(dtype, view.data, expected.data(), count, tolerance));
    expected.remove_prefix(view.bytes);
  }
  return results;
}

}  // namespace tilewright::runtime
