// Elementwise operators: as their row says, or more than that, where ONNX states types, attributes
// and operands in other ways.
#include <cmath>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

Result CastTo(NodeReader& n, ValueId x, ir::DType type, const std::string& name) {
  if (n.importer().TypeOf(x).dtype == type) return x;
  return n.importer().Emit("cast", {x}, {{"dtype", ir::TypeName(type)}}, name);
}

// Before opset 7, the attribute axis says to which dimension of `x` the first one of `y` belongs;
// those of `y` that are left out at its end are 1.
Result AtOldAxis(NodeReader& n, ValueId x, ValueId y) {
  if (n.importer().opset() >= 7 || n.Find("axis") == nullptr) return y;
  TW_ASSIGN(const int64_t broadcast, n.Int("broadcast", 0));
  if (broadcast == 0) return y;
  const int64_t rank = n.importer().TypeOf(x).rank();
  TW_ASSIGN(const int64_t axis, ReadAxis(n, 0, rank));
  std::vector<op::Dim> shape = n.importer().TypeOf(y).shape;
  const int64_t missing = rank - axis - static_cast<int64_t>(shape.size());
  if (missing < 0) {
    return n.Error("broadcast", StrCat("expected at most ", rank - axis, " dimensions from axis ",
                                       axis, " on, found ", op::ToText(n.importer().TypeOf(y))));
  }
  if (missing == 0) return y;
  shape.insert(shape.end(), static_cast<size_t>(missing), 1);
  return ReshapedTo(n, y, shape, PartName(n, "_aligned"));
}

// Numbers of less than a byte: floats are cut to integers, which wrap.
Result CastToPacked(NodeReader& n, ValueId x, const support::PackedInteger& type) {
  Composer c(n);
  const double count = std::ldexp(1, type.bits), half = type.with_sign ? count / 2 : 0;
  ValueId y = c.Add(c.Cast(x, ir::kI32), c.Scalar(half, ir::kI32));
  y = c.Sub(c.Op("mod", {y, c.Scalar(count, ir::kI32)}), c.Scalar(half, ir::kI32));
  y = c.Op("cast", {y}, {{"dtype", ir::TypeName(type.with_sign ? ir::kI8 : ir::kU8)}});
  TW_TRY(c.status());
  n.importer().MarkPacked(y, &type);
  return y;
}

// x^exponent of whole numbers, wrapping: squares, and products of those that the exponent has.
Result WholePower(NodeReader& n, ValueId x, int64_t exponent) {
  Importer& importer = n.importer();
  const ir::DType type = importer.TypeOf(x).dtype;
  std::optional<ValueId> product;
  ValueId square = x;
  for (int64_t rest = exponent; rest > 0; rest /= 2) {
    if (rest % 2 == 1) {
      if (!product) {
        product = square;
      } else {
        TW_ASSIGN(product, importer.Emit("mul", {*product, square}, {}, PartName(n, "_product")));
      }
    }
    if (rest > 1) {
      TW_ASSIGN(square, importer.Emit("mul", {square, square}, {}, PartName(n, "_square")));
    }
  }
  if (product) return importer.Emit("identity", {*product}, {}, n.output_name());
  const ValueId zero = ScalarConstant(n, type, 0, PartName(n, "_zero"));
  TW_ASSIGN(const ValueId none, importer.Emit("mul", {x, zero}, {}, PartName(n, "_none")));
  return importer.Emit("add", {none, ScalarConstant(n, type, 1, PartName(n, "_one"))}, {},
                       n.output_name());
}

// The same where the exponent is data. Of one of 128 or more only the lowest bit counts: that makes
// the powers of -1, 0, 1 and of even numbers; others overflow any type. A negative exponent gives
// the whole part: 0, but of 1 and -1.
Result DataPower(NodeReader& n, ValueId x, ValueId exponent) {
  constexpr int64_t kBits = 7;
  Composer c(n);
  const ir::DType type = c.TypeOf(x).dtype;
  const auto number = [&](double value) { return c.Scalar(value, type); };
  const ValueId e = c.Cast(exponent, ir::kI64), odd = c.Op("bit_and", {e, c.Number(1)});
  const ValueId small = c.Op("less", {e, c.Number(int64_t{1} << kBits)});
  const ValueId low = c.Op("where", {small, e, c.Add(odd, c.Number((int64_t{1} << kBits) - 2))});
  ValueId power = number(1), square = x;
  for (int64_t bit = 0; bit < kBits; ++bit) {
    const ValueId digit = c.Op("bit_and", {low, c.Number(int64_t{1} << bit)});
    const ValueId has = c.Op("greater", {digit, c.Number(0)});
    power = c.Mul(power, c.Op("where", {has, square, number(1)}));
    square = c.Mul(square, square);
  }
  const ValueId below = c.Op("less", {e, c.Number(0)});
  ValueId inverse = c.Op("where", {c.Op("equal", {x, number(1)}), number(1), number(0)});
  if (type.code == ir::TypeCode::kInt) {
    const ValueId sign =
        c.Op("where", {c.Op("greater", {odd, c.Number(0)}), number(-1), number(1)});
    inverse = c.Op("where", {c.Op("equal", {x, number(-1)}), sign, inverse});
  }
  return c.Done(c.Op("where", {below, inverse, power}));
}

}  // namespace

const op::OpSpec* ElementwiseRow(std::string_view onnx_op) {
  for (const op::OpSpec& row : op::Operators()) {
    if (row.elementwise() && !row.onnx.empty() && row.onnx[0] == onnx_op) return &row;
  }
  return nullptr;
}

Result ImportElementwise(NodeReader& n) {
  const op::OpSpec* spec = ElementwiseRow(n.op_type());
  TW_CHECK(spec != nullptr) << n.op_type();
  std::vector<ValueId> inputs;
  for (int i = 0; i < spec->max_inputs; ++i) {
    TW_ASSIGN(ValueId id, n.Input(i));
    inputs.push_back(id);
  }
  if (spec->max_inputs == 2) {
    TW_ASSIGN(inputs[1], AtOldAxis(n, inputs[0], inputs[1]));
  }
  op::Attrs attrs;
  for (const char* name : {"alpha", "beta", "gamma"}) {
    if (n.Find(name) == nullptr) continue;
    TW_ASSIGN(attrs[name], n.Float(name, 0));
  }
  for (const char* name : {"detect_negative", "detect_positive"}) {
    if (n.Find(name) == nullptr) continue;
    TW_ASSIGN(attrs[name], n.Int(name, 1));
  }
  TW_ASSIGN(const std::string approximate, n.String("approximate", "none"));
  if (approximate != "none" && approximate != "tanh") {
    return n.Error("attribute", StrCat("expected approximate none or tanh, found ", approximate));
  }
  if (approximate == "tanh") {
    return n.importer().Emit("gelu_tanh", inputs, attrs, n.output_name());
  }
  if (spec->name == "prelu") {
    // ONNX aligns the slope of rank 1 with the channels.
    const auto &x = n.importer().TypeOf(inputs[0]), &slope = n.importer().TypeOf(inputs[1]);
    if (slope.shape.size() == 1 && x.shape.size() > 2 && slope.shape[0] == x.shape[1]) {
      std::vector<op::Dim> shape(x.shape.size() - 1, 1);
      shape[0] = x.shape[1];
      TW_ASSIGN(inputs[1], ReshapedTo(n, inputs[1], shape, PartName(n, "_slope")));
    }
  }
  return n.importer().Emit(spec->name, inputs, attrs, n.output_name());
}

// Sum, Max, Min of any number of operands: a chain.
Result ImportVariadic(NodeReader& n) {
  const std::string row = n.op_type() == "Sum" ? "add" : n.op_type() == "Max" ? "max" : "min";
  TW_ASSIGN(ValueId value, n.Input(0));
  if (n.num_inputs() == 1) return n.importer().Emit("identity", {value}, {}, n.output_name());
  for (int i = 1; i < n.num_inputs(); ++i) {
    TW_ASSIGN(ValueId next, n.Input(i));
    const bool last = i + 1 == n.num_inputs();
    TW_ASSIGN(value, n.importer().Emit(row, {value, next}, {},
                                       last ? n.output_name() : PartName(n, StrCat("_part", i))));
  }
  return value;
}

namespace {

// One bound of a clip: constant ones become attributes, others max or min.
absl::Status ClipBound(NodeReader& n, int input, const char* attribute, op::Attrs* attrs,
                       std::optional<ValueId>* dynamic) {
  if (n.importer().opset() < 11) {
    if (n.Find(attribute) == nullptr) return absl::OkStatus();
    TW_ASSIGN((*attrs)[attribute], n.Float(attribute, 0));
    return absl::OkStatus();
  }
  if (!n.HasInput(input)) return absl::OkStatus();
  TW_ASSIGN(ValueId id, n.Input(input));
  std::optional<double> value = n.importer().ConstantScalar(id);
  const ir::DType type = n.importer().TypeOf(id).dtype;
  if (type.is_int() && type.bits == 64) value.reset();  // an attribute would not be exact
  if (value) (*attrs)[attribute] = *value;
  if (!value) *dynamic = id;
  return absl::OkStatus();
}

}  // namespace

Result ImportClip(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  op::Attrs attrs;
  std::optional<ValueId> low, high;
  TW_TRY(ClipBound(n, 1, "min", &attrs, &low));
  TW_TRY(ClipBound(n, 2, "max", &attrs, &high));
  if (low) {
    TW_ASSIGN(x, n.importer().Emit("max", {*low, x}, {}, PartName(n, "_low")));
  }
  if (high) {
    TW_ASSIGN(x, n.importer().Emit("min", {*high, x}, {}, PartName(n, "_high")));
  }
  return n.importer().Emit("clip", {x}, attrs, n.output_name());
}

Result ImportIdentity(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  if (n.importer().ContainerOf(x) != nullptr) return x;
  return n.importer().Emit("identity", {x}, {}, n.output_name());
}

Result ImportCast(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  TW_ASSIGN(const int64_t to, n.Int("to", 0));
  if (const support::PackedInteger* packed = support::FindPackedInteger(to)) {
    return CastToPacked(n, x, *packed);
  }
  TW_ASSIGN(const ir::DType type, ElementType(to));
  return n.importer().Emit("cast", {x}, {{"dtype", ir::TypeName(type)}}, n.output_name());
}

// The bits of numbers of one width as another type of it. Integers and bools need no more than a
// cast, which wraps.
Result ImportBitCast(NodeReader& n) {
  TW_ASSIGN(const ValueId x, n.Input(0));
  TW_ASSIGN(const int64_t to, n.Int("to", 0));
  TW_ASSIGN(const ir::DType type, ElementType(to));
  Importer& importer = n.importer();
  const op::TensorType from = importer.TypeOf(x);
  const bool small = importer.PackedTypeOf(x) != nullptr;  // bytes here
  const auto width = [](ir::DType t) { return t.is_bool() ? 8 : t.bits; };
  if (small || width(type) != width(from.dtype)) {
    return n.Error("type", StrCat("expected types of as many bits, none below 8, found ",
                                  op::ToText(from), " and ", ElementTypeName(to)));
  }
  if (type == from.dtype) return importer.Emit("identity", {x}, {}, n.output_name());
  const op::Attrs attrs = {{"dtype", ir::TypeName(type)}};
  if (!type.is_float() && !from.dtype.is_float()) {
    return importer.Emit("cast", {x}, attrs, n.output_name());
  }
  const auto& constant = importer.ValueOf(x).constant;
  if (constant != nullptr) {
    return importer.Constant(n.output_name(), {type, from.shape}, std::string(constant->view()));
  }
  return importer.Emit("bitcast", {x}, attrs, n.output_name());
}

Result ImportCastLike(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  TW_ASSIGN(ValueId like, n.Input(1));
  if (const support::PackedInteger* packed = n.importer().PackedTypeOf(like)) {
    return CastToPacked(n, x, *packed);
  }
  const ir::DType type = n.importer().TypeOf(like).dtype;
  return n.importer().Emit("cast", {x}, {{"dtype", ir::TypeName(type)}}, n.output_name());
}

// The result has the type of the base. Operands of two types meet in f64, as in NumPy.
Result ImportPow(NodeReader& n) {
  TW_ASSIGN(ValueId base, n.Input(0));
  TW_ASSIGN(ValueId exponent, n.Input(1));
  TW_ASSIGN(exponent, AtOldAxis(n, base, exponent));
  Importer& importer = n.importer();
  const ir::DType type = importer.TypeOf(base).dtype, other = importer.TypeOf(exponent).dtype;
  const std::optional<double> constant = importer.ConstantScalar(exponent);
  const bool whole = constant && importer.TypeOf(exponent).shape.empty() && *constant >= 0 &&
                     *constant == std::trunc(*constant) && *constant <= 64;
  if (type.is_int() && other.is_int()) {
    if (whole) return WholePower(n, base, static_cast<int64_t>(*constant));
    return DataPower(n, base, exponent);
  }
  if (type.is_float() && constant && op::RoundToType(*constant, type) == *constant) {
    const op::RefTensor same{{type, importer.TypeOf(exponent).shape}, {*constant}};
    exponent = importer.Constant(PartName(n, "_exponent"), same.type, op::ToBytes(same));
  }
  if (importer.TypeOf(exponent).dtype == type) {
    return importer.Emit("pow", {base, exponent}, {}, n.output_name());
  }
  TW_ASSIGN(base, CastTo(n, base, ir::kF64, PartName(n, "_base")));
  TW_ASSIGN(exponent, CastTo(n, exponent, ir::kF64, PartName(n, "_exponent")));
  TW_ASSIGN(const ValueId power, importer.Emit("pow", {base, exponent}, {}, PartName(n, "_power")));
  return CastTo(n, power, type, n.output_name());
}

Result ImportMod(NodeReader& n) {
  TW_ASSIGN(ValueId a, n.Input(0));
  TW_ASSIGN(ValueId b, n.Input(1));
  TW_ASSIGN(const int64_t fmod, n.Int("fmod", 0));
  return n.importer().Emit("mod", {a, b}, {{"fmod", fmod}}, n.output_name());
}

// The rows shift the bits of the type, and those of negative or large counts all out. To the right
// a negative number fills with its sign: as the complement of one that is not negative.
Result ImportBitShift(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0), count = c.Input(1);
  TW_ASSIGN(const std::string direction, n.String("direction", ""));
  if (direction != "LEFT" && direction != "RIGHT") {
    return n.Error("attribute", StrCat("expected direction LEFT or RIGHT, found ", direction));
  }
  if (direction == "LEFT") return c.Done(c.Op("shift_left", {x, count}));
  const ValueId shifted = c.Op("shift_right", {x, count});
  const ir::DType type = c.TypeOf(x).dtype;
  if (type.code != ir::TypeCode::kInt) return c.Done(shifted);
  const ValueId filled = c.Op("bit_not", {c.Op("shift_right", {c.Op("bit_not", {x}), count})});
  const ValueId negative = c.Op("less", {x, c.Scalar(0, type)});
  return c.Done(c.Op("where", {negative, filled, shifted}));
}

// A gate, swish(alpha a), times b.
Result ImportSwiGlu(NodeReader& n) {
  Composer c(n);
  const ValueId a = c.Input(0), b = c.Input(1);
  TW_ASSIGN(const double alpha, n.Float("alpha", 1));
  return c.Done(c.Mul(c.Op("swish", {a}, {{"alpha", alpha}}), b));
}

// Of integers in f64, which holds those of 32 bits.
Result ImportShrink(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  op::Attrs attrs;
  TW_ASSIGN(attrs["bias"], n.Float("bias", 0));
  TW_ASSIGN(attrs["lambd"], n.Float("lambd", 0.5));
  const ir::DType type = n.importer().TypeOf(x).dtype;
  if (type.is_float()) return n.importer().Emit("shrink", {x}, attrs, n.output_name());
  if (type.bits > 32) {
    return n.Error("type", StrCat("expected floats or integers of at most 32 bits, found ",
                                  ir::TypeName(type)));
  }
  TW_ASSIGN(x, CastTo(n, x, ir::kF64, PartName(n, "_wide")));
  TW_ASSIGN(x, n.importer().Emit("shrink", {x}, attrs, PartName(n, "_shrunk")));
  return CastTo(n, x, type, n.output_name());
}

}  // namespace tilewright::graph::onnx
