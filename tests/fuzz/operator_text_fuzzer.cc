// libFuzzer entry for definitions of custom operators, which come with models: for operands of the
// ranks that a definition states, it becomes a function or an error.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "compiler/ir/verify.h"
#include "compiler/op/custom_text.h"
#include "compiler/op/op.h"
#include "deploy/support/status.h"

namespace tilewright {
namespace {

void TryDefinition(const op::custom::Definition& definition) {
  const auto set = op::custom::SetAttributes(definition, {});
  if (!set.ok()) return;
  std::vector<op::TensorType> types;
  for (const op::custom::Operand& operand : set->operands) {
    ir::DType type = ir::kF32;
    if (ir::ParseType(operand.type, &type) && type.is_vector()) return;
    op::TensorType& added = types.emplace_back(type, std::vector<int64_t>{});
    if (operand.leading) added.shape.emplace_back(2);
    for (size_t d = 0; d < operand.dims.size(); ++d) added.shape.emplace_back(4);
  }
  const op::OpSpec& spec = *op::FindOp("custom");
  const std::string text = op::custom::Print(*set);
  TW_CHECK(op::custom::Print((*op::custom::Parse(text))[0]) == text);
  const op::Attrs attrs = {{"definition", text}};
  op::DimEqualities equal;
  const auto results = op::InferTypes(spec, types, attrs, &equal);
  if (!results.ok()) return;
  ir::FunctionBuilder b("fuzz");
  std::vector<ir::Buffer> operands;
  for (const op::TensorType& type : types) {
    operands.push_back(b.Input("x", type.dtype, op::ShapeExprs(b, type.shape)));
  }
  const auto outputs = op::Compute(spec, {b, "y", operands, types, *results, attrs});
  TW_CHECK(outputs.ok());
  TW_CHECK(ir::Verify(b.Finish(*outputs)).ok());
}

}  // namespace
}  // namespace tilewright

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed =
      tilewright::op::custom::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!parsed.ok()) return 0;
  for (const auto& definition : *parsed) tilewright::TryDefinition(definition);
  return 0;
}
