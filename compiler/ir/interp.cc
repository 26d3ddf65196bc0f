#include "compiler/ir/interp.h"

#include <cstring>
#include <utility>

#include "compiler/ir/interp_stmt.h"
#include "compiler/ir/numeric.h"
#include "deploy/support/status.h"

namespace tilewright::ir {

namespace {

template <typename T>
T ReadAs(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <typename T>
void WriteAs(uint8_t* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

Cell DecodeCell(const uint8_t* p, DType t) {
  switch (t.code) {
    case TypeCode::kBool:
      return {.i = *p != 0};
    case TypeCode::kBFloat:
      return {.d = BfloatToFloat(ReadAs<uint16_t>(p))};
    case TypeCode::kFloat:
      if (t.bits == 16) return {.d = HalfToFloat(ReadAs<uint16_t>(p))};
      return {.d = t.bits == 32 ? static_cast<double>(ReadAs<float>(p)) : ReadAs<double>(p)};
    default: {
      int64_t v = 0;
      std::memcpy(&v, p, t.bytes());  // little-endian; WrapInt extends the sign
      return {.i = WrapInt(v, t)};
    }
  }
}

void EncodeCell(Cell c, DType t, uint8_t* p) {
  switch (t.code) {
    case TypeCode::kBool:
      *p = c.i != 0;
      return;
    case TypeCode::kBFloat:
      return WriteAs(p, FloatToBfloat(c.d));
    case TypeCode::kFloat:
      if (t.bits == 16) return WriteAs(p, FloatToHalf(c.d));
      return t.bits == 32 ? WriteAs(p, static_cast<float>(c.d)) : WriteAs(p, c.d);
    default:
      std::memcpy(p, &c.i, t.bytes());
  }
}

}  // namespace

absl::Status Interpreter::BindSizes(const Function& f, const std::vector<int64_t>& sizes) {
  if (sizes.size() != f.size_params.size()) {
    return support::InvalidArgument(
        "ir.interp.sizes", "expected " + std::to_string(f.size_params.size()) + " sizes, found " +
                               std::to_string(sizes.size()));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1) {
      return support::InvalidArgument(
          "ir.interp.sizes",
          f.size_params[i]->name + ": expected at least 1, found " + std::to_string(sizes[i]));
    }
    machine_.SetVar(machine_.DeclareVar(f.size_params[i]), {.i = sizes[i]});
  }
  return absl::OkStatus();
}

absl::Status Interpreter::Bind(const Buffer& param, TensorData* data) {
  BufferState* state = machine_.DeclareBuffer(param);
  if (!machine_.Allocate(state, ResolveAll(param->shape))) return Result();
  size_t width = param->dtype.bytes(), bytes = state->cells.size() * width;
  bool holds_values = options_.outputs_hold_values && data->bytes.size() == bytes;
  if (param->role == Role::kOutput && !holds_values) {
    data->bytes.assign(bytes, 0);
    return Result();
  }
  if (data->bytes.size() != bytes) {
    return support::InvalidArgument("ir.interp.argument_size",
                                    param->name + ": expected " + std::to_string(bytes) +
                                        " bytes, found " + std::to_string(data->bytes.size()));
  }
  for (size_t i = 0; i < state->cells.size(); ++i) {
    state->cells[i] = DecodeCell(data->bytes.data() + i * width, param->dtype);
    state->written[i] = 1;
  }
  return Result();
}

absl::Status Interpreter::Run(const Function& f, const std::vector<int64_t>& sizes,
                              const std::vector<TensorData*>& args) {
  TW_TRY(BindSizes(f, sizes));
  if (args.size() != f.params.size()) {
    return support::InvalidArgument("ir.interp.arguments",
                                    "expected " + std::to_string(f.params.size()) +
                                        " arguments, found " + std::to_string(args.size()));
  }
  for (size_t i = 0; i < args.size(); ++i) TW_TRY(Bind(f.params[i], args[i]));
  for (const Buffer& b : f.allocs) {
    BufferState* state = machine_.DeclareBuffer(b);
    if (!machine_.Allocate(state, ResolveAll(b->shape))) return Result();
  }
  Action body = Resolve(f.body);
  if (!machine_.failed()) Execute(body);
  machine_.CheckLanded(nullptr);
  TW_TRY(Result());
  for (size_t i = 0; i < args.size(); ++i) {
    const Buffer& b = f.params[i];
    if (b->role != Role::kOutput) continue;
    const BufferState& state = *machine_.Find(b);
    for (size_t k = 0; k < state.cells.size(); ++k) {
      if (options_.check_uninitialised && state.written[k] == 0) {
        return support::InvalidArgument(
            "ir.interp.unwritten_output",
            b->name + ": element " + std::to_string(k) + " was never written");
      }
      EncodeCell(state.cells[k], b->dtype, args[i]->bytes.data() + k * b->dtype.bytes());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> Interpreter::Shape(const Function& f, const Buffer& b,
                                                        const std::vector<int64_t>& sizes) {
  TW_TRY(BindSizes(f, sizes));
  std::vector<int64_t> shape;
  for (const Expr& extent : b->shape) {
    Code code = machine_.Resolve(extent);
    shape.push_back(machine_.failed() ? 0 : machine_.EvalInt(code));
  }
  TW_TRY(Result());
  return shape;
}

absl::Status Interpret(const Function& function, const std::vector<int64_t>& sizes,
                       std::vector<TensorData*> args, const InterpOptions& options) {
  if (function.body == nullptr) return support::InvalidArgument("ir.interp.no_body", function.name);
  return Interpreter(options).Run(function, sizes, args);
}

absl::StatusOr<int64_t> BufferElements(const Function& function, const Buffer& buffer,
                                       const std::vector<int64_t>& sizes) {
  TW_ASSIGN(std::vector<int64_t> shape, Interpreter({}).Shape(function, buffer, sizes));
  int64_t elements = 1;
  for (int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements)) {
      return support::InvalidArgument(
          "ir.interp.size",
          buffer->name + ": expected a sensible shape, found extent " + std::to_string(extent));
    }
  }
  return elements;
}

absl::StatusOr<int64_t> EvalIntExpr(const Expr& e,
                                    const std::vector<std::pair<Var, int64_t>>& values) {
  if (e->dtype.is_float() || e->dtype.is_vector()) {
    return support::InvalidArgument("ir.interp.type",
                                    "expected a scalar integer, found " + TypeName(e->dtype));
  }
  ExprMachine machine;
  for (const auto& [var, value] : values) machine.SetVar(machine.DeclareVar(var), {.i = value});
  Code code = machine.Resolve(e);
  int64_t result = machine.failed() ? 0 : machine.EvalInt(code);
  if (machine.failed()) return support::InvalidArgument(machine.slug(), machine.detail());
  return result;
}

}  // namespace tilewright::ir
