// Brings a model to the opset that quantisation needs, with the same meaning. Inside of
// compiler/quantize.
#pragma once

#include <cstdint>

#include "compiler/quantize/model_view.h"
#include "deploy/support/status.h"

namespace tilewright::quantize {

// The first with scales for each channel.
inline constexpr int64_t kNeededOpset = 13;

// Changes the operators, of subgraphs too, whose form changed between the model's opset and
// kNeededOpset. Does nothing to a model of a later one. INVALID_ARGUMENT quantize.model.opset for
// models before opset 7, whose operators broadcast in another way, and for forms that later opsets
// do not have.
absl::Status RaiseOpset(pb::ModelProto* model);

}  // namespace tilewright::quantize
