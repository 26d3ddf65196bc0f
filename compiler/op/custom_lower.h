// From a definition and the types of its operands to tensor IR: sizes are bound, requirements
// checked, reductions inside of expressions become stages of their own, and every expression is
// type-checked before any IR is built: nothing that a text says makes the builder abort.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/op/custom_text.h"
#include "compiler/op/op.h"

namespace tilewright::op::custom {

struct Translator;  // custom_translate.h

// An axis with its size. Those of `..` come first and have no names.
struct SizedAxis {
  std::string name;
  Dim extent;
};
struct LoweredStage {
  std::string name;
  std::vector<SizedAxis> axes;          // of its tensor
  size_t leading = 0;                   // how many of them are those of `..`
  std::vector<SizedAxis> reduced = {};  // of the reduction that its value is; none: no reduction
  std::string reduction = {};           // "sum", "argmax", ...
  ir::DType compared = {};              // argmax, argmin: the type of `value`
  NodeRef value = nullptr;              // of one element; has no reductions inside
  TensorType type = {};
  int64_t operations = 0;            // of one value
  std::set<std::string> reads = {};  // operands and stages
};

class Lowered {
 public:
  // `wide`: floats of 32 bits are 64 bits wide, as references want them. `equal`: as for type
  // rules. INVALID_ARGUMENT op.custom.<reason>.
  static absl::StatusOr<Lowered> Create(const Definition& definition,
                                        std::span<const TensorType> inputs, bool wide,
                                        DimEqualities* equal);

  const std::vector<LoweredStage>& stages() const { return stages_; }
  const std::vector<TensorType>& results() const { return results_; }
  const LoweredStage* Find(std::string_view name) const;
  // The names of the stages that a stage needs, itself included. Those in `given` are there.
  std::set<std::string> Needs(const std::string& stage, const std::set<std::string>& given) const;
  // Adds the stages that `stage` needs. `given`: buffers of stages that are there already.
  ir::Buffer Build(ir::FunctionBuilder& b, const std::string& name, const std::string& stage,
                   std::span<const ir::Buffer> operands,
                   std::map<std::string, ir::Buffer> given) const;
  // Whether the operator is its one stage without reductions, in which every operand is read where
  // the element of the result is, as broadcasting reads it; then `text` is the expression over x0,
  // x1, ... and `operands` says which these are.
  struct Elementwise {
    std::string text;
    std::vector<size_t> operands;
  };
  std::optional<Elementwise> AsElementwise() const;

 private:
  explicit Lowered(const Definition& definition, bool wide)
      : definition_(definition), wide_(wide) {}
  absl::Status BindOperands(std::span<const TensorType> inputs, DimEqualities* equal);
  absl::Status BindOperand(const Operand& operand, const TensorType& type, DimEqualities* equal);
  absl::Status CheckRequirements(DimEqualities* equal) const;
  absl::Status AddStages();
  absl::Status AddStage(const Stage& stage);
  absl::Status AddLowered(LoweredStage stage);
  absl::Status SetType(Translator& translator, LoweredStage* stage) const;
  absl::StatusOr<NodeRef> Lift(const NodeRef& node, const LoweredStage& within,
                               const std::vector<SizedAxis>& scope);
  absl::StatusOr<NodeRef> LiftReduction(const NodeRef& node, const LoweredStage& within,
                                        const std::vector<SizedAxis>& scope);
  absl::StatusOr<std::vector<SizedAxis>> Sized(const std::vector<Axis>& axes) const;
  absl::StatusOr<Dim> Size(const NodeRef& node) const;
  absl::StatusOr<std::optional<bool>> Decide(const NodeRef& node, DimEqualities* equal) const;
  absl::StatusOr<ir::DType> TypeOf(std::string_view word) const;

  Definition definition_;
  bool wide_;
  std::map<std::string, Dim> dims_;
  std::map<std::string, ir::DType> types_;
  std::optional<std::vector<Dim>> leading_;
  std::map<std::string, TensorType> tensors_;  // operands and stages
  std::vector<LoweredStage> stages_;
  std::vector<TensorType> results_;
  std::map<std::string, std::string> lifted_;  // text of a reduction with its axes → stage
};

// One element of an expression over x0, x1, ...: of args of these types.
absl::StatusOr<ir::Expr> ElementOf(const NodeRef& expression, std::span<const ir::Expr> args,
                                   ir::DType result, bool wide);

}  // namespace tilewright::op::custom
