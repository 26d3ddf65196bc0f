// Tasks of a matrix unit as the graph passes leave them. Pure functions.
#pragma once

#include <cstdint>

#include "compiler/ir/ir.h"

namespace tilewright::tests {

// Square kernels; channels in blocks of the unit.
struct ConvolutionTask {
  int64_t inputs = 1, columns = 1;
  int64_t height = 1, width = 1, taps = 3, stride = 1, pad = 1, dilation = 1, images = 1;
  bool bias = true, relu = true;
  bool apart = false;  // each block of columns reads the inputs of its own: as many, and groups
};

// A quantised convolution as a function of the driver. Aborts where it has no outputs.
ir::Function FunctionOf(const ConvolutionTask& task, int64_t block);

}  // namespace tilewright::tests
