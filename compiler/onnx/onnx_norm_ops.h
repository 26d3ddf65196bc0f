// The steps that normalisations have in common. Part of the import.
#pragma once

#include <vector>

#include "compiler/onnx/onnx_composer.h"

namespace tilewright::graph::onnx {

struct Standard {
  ValueId mean, deviation, normalized;
};
// (x - mean) / sqrt(variance + epsilon) over these axes.
Standard Standardize(Composer& c, ValueId x, const std::vector<int64_t>& axes, double epsilon);
// The same over the last axis. Halves compute in f32, and only `normalized` is of their type.
Standard StandardizeRows(Composer& c, ValueId x, double epsilon);
// x / sqrt(mean of squares + epsilon) over these axes.
ValueId DividedByRms(Composer& c, ValueId x, const std::vector<int64_t>& axes, double epsilon);

// x - max - log(sum(exp(x - max))) along an axis.
ValueId LogSoftmaxAlong(Composer& c, ValueId x, int64_t axis);

}  // namespace tilewright::graph::onnx
