// An operand that a run gives where few of its values make the stated shape: the module computes
// the result for each of them, and chooses. Part of the import.
#pragma once

#include <string>

#include "compiler/onnx/onnx_composer.h"

namespace tilewright::graph::onnx {

class RunTimeChoice {
 public:
  explicit RunTimeChoice(Composer& c) : c_(c) {}

  bool empty() const { return value_ == kNone; }
  // `value` is the result where `wanted`, a bool, holds.
  void Add(ValueId wanted, ValueId value) {
    value_ = empty() ? value : c_.Op("where", {wanted, value, value_});
    known_ = known_ == kNone ? wanted : c_.Op("or", {known_, wanted});
  }
  // The result. Runs in which none of them holds are refused; `what` says for people what was to.
  // REQUIRES: !empty().
  Result Done(const std::string& what) {
    c_.ExpectSizes(c_.Reshape(c_.Cast(known_, ir::kI64), {1}), {1}, what);
    return c_.Done(value_);
  }

 private:
  Composer& c_;
  ValueId value_ = kNone, known_ = kNone;
};

}  // namespace tilewright::graph::onnx
