// What tests of whole graphs share: a module's outputs, and how they differ from others.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/rng.h"

namespace tilewright::tests {

// Where two lists of outputs differ by more than rounding does; "" = nowhere.
std::string FirstDifference(const std::vector<op::RefTensor>& expected,
                            const std::vector<op::RefTensor>& actual);

// A session of the module in these bytes, with guard pages.
absl::StatusOr<std::unique_ptr<runtime::Session>> GuardedSession(const std::string& module,
                                                                 int threads);
// The outputs of a module of `fused`, run behind guard pages with a poisoned arena; nullopt with an
// error.
std::optional<std::vector<op::RefTensor>> RunModule(const graph::Graph& fused,
                                                    const std::string& module,
                                                    const std::vector<op::RefTensor>& inputs,
                                                    int threads, std::string* error);
// The same of such a session, whose outputs have these types at the inputs' sizes.
std::optional<std::vector<op::RefTensor>> RunSession(runtime::Session* session,
                                                     const std::vector<op::RefTensor>& inputs,
                                                     const std::vector<op::TensorType>& types,
                                                     std::string* error);

// The module with launches of fixed sizes, chosen at random, on a device: the processor behind the
// interface of plug-ins, with memory of its own. Adds how many those are to `on_device`.
std::string OnTwoSides(const std::string& module, support::Rng* rng, int64_t* on_device);

}  // namespace tilewright::tests
