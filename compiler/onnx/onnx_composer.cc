#include "compiler/onnx/onnx_composer.h"

#include <numeric>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {

using support::StrCat;

ValueId Composer::Fail(std::string_view reason, std::string_view detail) {
  if (status_.ok()) status_ = n_.Error(reason, detail);
  return kNone;
}

ValueId Composer::Input(int i) {
  if (!status_.ok()) return kNone;
  Result id = n_.Input(i);
  if (!id.ok()) status_ = id.status();
  return id.ok() ? *id : kNone;
}

ValueId Composer::Op(std::string_view row, std::vector<ValueId> inputs, op::Attrs attrs) {
  if (!status_.ok()) return kNone;
  Result id =
      n_.importer().Emit(row, std::move(inputs), std::move(attrs), PartName(n_, StrCat("_", row)));
  if (!id.ok()) status_ = id.status();
  return id.ok() ? *id : kNone;
}

const op::TensorType& Composer::TypeOf(ValueId id) const {
  constexpr size_t kMostDimensions = 16;  // as op::CheckType has it
  // What follows an error still reads dimensions, by any index; nothing comes of it.
  static const op::TensorType* const none =
      new op::TensorType{ir::kF32, std::vector<int64_t>(kMostDimensions, 1)};
  return !status_.ok() || id == kNone ? *none : n_.importer().TypeOf(id);
}

ValueId Composer::Constant(ir::DType type, std::vector<int64_t> shape, std::vector<double> values) {
  if (!status_.ok()) return kNone;
  op::RefTensor tensor{{type, std::move(shape)}, std::move(values)};
  for (double& value : tensor.values) value = op::RoundToType(value, type);
  return n_.importer().Constant(PartName(n_, "_constant"), tensor.type, op::ToBytes(tensor));
}

ValueId Composer::Integers(std::vector<int64_t> shape, const std::vector<int64_t>& values) {
  if (!status_.ok()) return kNone;
  const op::RefTensor tensor = op::FromIntegers({ir::kI64, std::move(shape)}, values);
  return n_.importer().Constant(PartName(n_, "_positions"), tensor.type, op::ToBytes(tensor));
}

ValueId Composer::Counting(ir::DType type, const op::Dim& count, int64_t axis, int64_t rank) {
  if (!status_.ok()) return kNone;
  std::vector<op::Dim> shape(static_cast<size_t>(rank), 1);
  shape[axis] = count;
  if (!count.is_constant()) {
    const op::Attrs attrs = {{"start", std::vector<int64_t>{0}}, {"shape", op::ShapeAttr({count})}};
    return ReshapeTo(Cast(Op("counting", {}, attrs), type), shape);
  }
  std::vector<double> values(static_cast<size_t>(count.value()));
  std::iota(values.begin(), values.end(), 0);
  return Constant(type, op::TensorType(type, shape).sizes(), std::move(values));
}

ValueId Composer::SizeOf(const op::Dim& size, ir::DType type) {
  if (size.is_constant()) return Scalar(static_cast<double>(size.value()), type);
  const op::Attrs attrs = {{"start", op::ShapeAttr({size})}, {"shape", std::vector<int64_t>{1}}};
  return Reshape(Cast(Op("counting", {}, attrs), type), {});
}

std::vector<int64_t> Composer::Shape(ValueId id) {
  if (TypeOf(id).fixed()) return TypeOf(id).sizes();
  Fail("open_size",
       StrCat("expected an operand of fixed shape, found ", op::ToText(TypeOf(id)), kGiveNumbers));
  return TypeOf(id).sizes();  // those after an error
}

int64_t Composer::FixedSize(ValueId id, int64_t axis) {
  const op::Dim size = Dims(id)[static_cast<size_t>(axis)];
  if (!size.is_constant()) {
    Fail("open_size", StrCat("expected a fixed size along axis ", axis, ", found ",
                             op::ToText(TypeOf(id)), kGiveNumbers));
  }
  return size.constant().value_or(1);
}

int64_t Composer::Count(ValueId id) {
  if (TypeOf(id).fixed()) return TypeOf(id).elements();
  Fail("open_size",
       StrCat("expected a fixed number of elements, found ", op::ToText(TypeOf(id)), kGiveNumbers));
  return 1;
}

op::Dim Composer::Elements(ValueId x) {
  const std::optional<op::Dim> elements = op::Dim::Product(TypeOf(x).shape);
  if (!elements) Fail("open_size", StrCat("expected fewer open sizes", kGiveNumbers));
  return elements.value_or(1);
}

ValueId Composer::Reshape(ValueId x, std::vector<int64_t> shape) {
  return ReshapeTo(x, {shape.begin(), shape.end()});
}

ValueId Composer::ReshapeTo(ValueId x, const std::vector<op::Dim>& shape) {
  if (TypeOf(x).shape == shape) return x;
  return Op("reshape", {x}, {{"shape", op::ShapeAttr(shape)}});
}

ValueId Composer::Transpose(ValueId x, std::vector<int64_t> perm) {
  std::vector<int64_t> same(perm.size());
  std::iota(same.begin(), same.end(), 0);
  if (perm == same) return x;
  return Op("transpose", {x}, {{"perm", std::move(perm)}});
}

ValueId Composer::MoveAxis(ValueId x, int64_t from, int64_t to) {
  if (!ok()) return kNone;
  std::vector<int64_t> perm(static_cast<size_t>(Rank(x)));
  std::iota(perm.begin(), perm.end(), 0);
  perm.erase(perm.begin() + from);
  perm.insert(perm.begin() + to, from);
  return Transpose(x, std::move(perm));
}

ValueId Composer::Cast(ValueId x, ir::DType type) {
  if (TypeOf(x).dtype == type) return x;
  return Op("cast", {x}, {{"dtype", ir::TypeName(type)}});
}

ValueId Composer::Broadcast(ValueId x, std::vector<int64_t> shape) {
  if (Shape(x) == shape) return x;
  return Op("expand", {x}, {{"shape", std::move(shape)}});
}

ValueId Composer::BroadcastTo(ValueId x, const std::vector<op::Dim>& shape) {
  if (Dims(x) == shape) return x;
  return Op("expand", {x}, {{"shape", op::ShapeAttr(shape)}});
}

ValueId Composer::Reduce(std::string_view kind, ValueId x, std::vector<int64_t> axes,
                         bool keepdims) {
  return Op("reduce", {x},
            {{"kind", std::string(kind)},
             {"axes", std::move(axes)},
             {"keepdims", static_cast<int64_t>(keepdims)}});
}

void Composer::ExpectDims(ValueId found, std::vector<op::Dim> expected, const std::string& what) {
  if (!status_.ok()) return;
  const auto count = static_cast<int64_t>(expected.size());
  if (const int64_t numbers = Count(found); ok() && numbers != count) {
    Fail("shape", StrCat("expected ", numbers,
                         " sizes, as many as an operand has numbers; the model states ",
                         op::DimsText(expected)));
  }
  if (!ok() || count == 0) return;
  found = Reshape(Cast(found, ir::kI64), {count});
  if (status_.ok()) n_.importer().Expect({found, {std::move(expected), what}});
}

ValueId Composer::Slice(ValueId x, int64_t axis, const op::Dim& start, const op::Dim& count,
                        int64_t step) {
  if (!status_.ok()) return kNone;
  if (axis >= Rank(x)) {
    return Fail("shape",
                StrCat("expected a tensor with an axis ", axis, ", found ", op::ToText(TypeOf(x))));
  }
  if (start == op::Dim(0) && step == 1 && count == Dims(x)[axis]) return x;
  const int64_t own_step = count == op::Dim(1) ? 1 : step;
  Result id = Sliced(n_, x, axis, start, own_step, count, PartName(n_, "_slice"));
  if (!id.ok()) status_ = id.status();
  return id.ok() ? *id : kNone;
}

ValueId Composer::CountingFrom(const op::Dim& start, const op::Dim& count) {
  constexpr int64_t kMostNumbers = int64_t{1} << 24;
  if (!status_.ok()) return kNone;
  const std::optional<int64_t> end = n_.importer().Bound(start + count, /*largest=*/true);
  if (!end || *end > kMostNumbers) {
    return Fail("open_size",
                StrCat("expected positions up to a largest size of at most ", kMostNumbers,
                       ", found ", (start + count).ToText(), kGiveNumbers));
  }
  return Slice(Counting(ir::kI64, *end, 0, 1), 0, start, count);
}

ValueId Composer::Concat(std::vector<ValueId> parts, int64_t axis) {
  if (parts.size() == 1) return parts[0];
  return Op("concat", std::move(parts), {{"axis", axis}});
}

ValueId Composer::MatMul(ValueId a, ValueId b) {
  if (!status_.ok()) return kNone;
  Result id = EmitMatMul(n_, a, b, PartName(n_, "_matmul"));
  if (!id.ok()) status_ = id.status();
  return id.ok() ? *id : kNone;
}

ValueId Continued(Composer& c, ValueId x, int64_t axis, int64_t more, ValueId fill) {
  std::vector<op::Dim> shape = c.Dims(x);
  shape[static_cast<size_t>(axis)] = more;
  return c.Concat({x, c.Op("expand", {fill}, {{"shape", op::ShapeAttr(shape)}})}, axis);
}

ValueId Widened(Composer& c, ValueId x, int64_t axis, int64_t size) {
  if (!c.ok() || c.Dims(x)[static_cast<size_t>(axis)] == op::Dim(size)) return x;
  const ValueId zero = c.Scalar(0, c.TypeOf(x).dtype);
  return c.Slice(Continued(c, x, axis, size, zero), axis, 0, size);
}

// The axis as rows of a matrix, from its end if `reverse`: row i of the result combines i of them.
ValueId Cumulative(Composer& c, std::string_view kind, ValueId x, int64_t axis, bool exclusive,
                   bool reverse) {
  if (!c.ok()) return kNone;
  const ValueId first = c.MoveAxis(x, axis, 0);
  const std::vector<op::Dim> shape = c.Dims(first);
  const op::Dim length = shape[0];
  const std::optional<op::Dim> rest = op::Dim::Product(std::span(shape).subspan(1));
  if (!rest) return c.Fail("open_size", StrCat("expected fewer open sizes", kGiveNumbers));
  const auto turned = [&](ValueId rows) {
    return reverse ? c.Slice(rows, 0, length - op::Dim(1), length, -1) : rows;
  };
  const ValueId rows = turned(c.ReshapeTo(first, {length, *rest}));
  const ValueId all = c.Op("cumulate", {rows}, {{"kind", std::string(kind)}});
  const ValueId own = turned(c.Slice(all, 0, exclusive ? 0 : 1, length));
  return c.MoveAxis(c.ReshapeTo(own, shape), 0, axis);
}

}  // namespace tilewright::graph::onnx
