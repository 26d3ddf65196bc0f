#include "tests/support/matrix_tasks.h"

#include <string>

#include "compiler/driver/tasks.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {

using support::StrCat;

ir::Function FunctionOf(const ConvolutionTask& c, int64_t block) {
  const auto out = [&](int64_t in) {
    return (in + 2 * c.pad - (c.taps - 1) * c.dilation - 1) / c.stride + 1;
  };
  const std::string channels = StrCat("i32[", c.columns, ",1,1,", block, "]");
  const std::string result =
      StrCat("[", c.images, ",", c.columns, ",", out(c.height), ",", out(c.width), ",", block, "]");
  std::string text =
      StrCat("graph {\n  input %0: i8[", c.images, ",", c.inputs, ",", c.height, ",", c.width, ",",
             block, "]\n  weight %1: i8[", c.columns, ",", c.apart ? 1 : c.inputs, ",", c.taps, ",",
             c.taps, ",", block, ",", block, "]\n");
  int next = 2;
  if (c.bias) text += StrCat("  weight %", next++, ": ", channels, "\n");
  const int multiplier = next;
  text += StrCat("  weight %", next++, ": ", channels, "\n");
  const auto node = [&](const std::string& type, const std::string& rest) {
    text += StrCat("  %", next, ": ", type, result, " = ", rest, "\n");
    return next++;
  };
  const auto twice = [](int64_t n) { return StrCat("[", n, ",", n, "]"); };
  int last = node("i32", StrCat("conv2d(%0, %1) {data_layout=\"NCHW", block,
                                "c\", dilations=", twice(c.dilation),
                                c.apart ? StrCat(", groups=", c.columns) : "", ", pads=[", c.pad,
                                ",", c.pad, ",", c.pad, ",", c.pad, "], strides=", twice(c.stride),
                                ", weight_layout=\"OIHW", block, "o", block, "i\"}"));
  if (c.bias) last = node("i32", StrCat("add(%", last, ", %2)"));
  if (c.relu) last = node("i32", StrCat("relu(%", last, ")"));
  last = node("i32", StrCat("requantize(%", last, ", %", multiplier, ") {shift=10}"));
  last = node("i8", StrCat("cast(%", last, ") {dtype=\"i8\"}"));
  auto function = driver::TaskFunction(StrCat(text, "  output %", last, "\n}\n"));
  TW_CHECK(function.ok()) << support::StatusText(function.status()) << text;
  return *std::move(function);
}

}  // namespace tilewright::tests
