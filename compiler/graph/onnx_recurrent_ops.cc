// LSTM, unrolled over its steps: the products with the input are one matrix product for all steps,
// each step adds the product with the state and applies the gates. Steps have equal shapes, so that
// all of them are the same few tasks.
#include "compiler/graph/onnx_conversions.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

constexpr int64_t kMaxSteps = 4096;

struct LstmShape {
  int64_t steps, batch, inputs, hidden;
};

absl::StatusOr<LstmShape> CheckLstm(NodeReader& n, ValueId x, ValueId w, ValueId r) {
  for (const char* name : {"activations", "clip", "activation_alpha", "activation_beta"}) {
    if (n.Find(name) != nullptr) {
      return n.Error("attribute", StrCat("expected the default activations, found ", name));
    }
  }
  TW_ASSIGN(const std::string direction, n.String("direction", "forward"));
  TW_ASSIGN(const int64_t forget, n.Int("input_forget", 0));
  TW_ASSIGN(const int64_t layout, n.Int("layout", 0));
  if (direction != "forward" || forget != 0 || layout != 0 || n.HasInput(4) || n.HasInput(7)) {
    return n.Error("attribute",
                   "expected the forward direction over whole sequences without peepholes, found "
                   "another form");
  }
  const auto &xs = n.importer().TypeOf(x).shape, &ws = n.importer().TypeOf(w).shape,
             &rs = n.importer().TypeOf(r).shape;
  const bool fine = xs.size() == 3 && ws.size() == 3 && rs.size() == 3 && ws[0] == 1 &&
                    rs[0] == 1 && ws[1] == rs[1] && ws[1] == 4 * rs[2] && ws[2] == xs[2];
  if (!fine || xs[0] > kMaxSteps) {
    return n.Error(
        "shape",
        StrCat("expected x [t<=", kMaxSteps, ",n,i], w [1,4h,i] and r [1,4h,h], found ",
               op::ToText(n.importer().TypeOf(x)), ", ", op::ToText(n.importer().TypeOf(w)), ", ",
               op::ToText(n.importer().TypeOf(r))));
  }
  return LstmShape{xs[0], xs[1], xs[2], rs[2]};
}

class LstmBuilder {
 public:
  LstmBuilder(NodeReader& n, const LstmShape& shape) : n_(n), s_(shape) {}

  Result Run(ValueId x, ValueId w, ValueId r) {
    TW_ASSIGN(ValueId rows, Reshaped(n_, x, {s_.steps * s_.batch, s_.inputs}, Name("x")));
    TW_ASSIGN(w, Reshaped(n_, w, {4 * s_.hidden, s_.inputs}, Name("w")));
    TW_ASSIGN(r, Reshaped(n_, r, {4 * s_.hidden, s_.hidden}, Name("r")));
    TW_ASSIGN(ValueId products, Emit("dense", {rows, w}, {{"weight_layout", std::string("NK")}}));
    TW_ASSIGN(products, AddBias(products));
    TW_ASSIGN(ValueId h, State(5));
    TW_ASSIGN(ValueId c, State(6));
    std::vector<ValueId> outputs;
    for (int64_t t = 0; t < s_.steps; ++t) {
      TW_ASSIGN(ValueId input, Sliced(n_, products, 0, t * s_.batch, 1, s_.batch, Name("t")));
      TW_TRY(Step(input, r, &h, &c));
      outputs.push_back(h);
    }
    TW_ASSIGN(ValueId last_h, Reshaped(n_, h, {1, s_.batch, s_.hidden}, Name("h")));
    TW_ASSIGN(ValueId last_c, Reshaped(n_, c, {1, s_.batch, s_.hidden}, Name("c")));
    TW_TRY(n_.BindOutput(1, last_h));
    TW_TRY(n_.BindOutput(2, last_c));
    TW_ASSIGN(ValueId y, Emit("concat", outputs, {{"axis", int64_t{0}}}));
    return Reshaped(n_, y, {s_.steps, 1, s_.batch, s_.hidden}, n_.output_name());
  }

 private:
  std::string Name(std::string_view part) { return PartName(n_, StrCat("_", part)); }
  Result Emit(std::string_view op_name, std::vector<ValueId> inputs, op::Attrs attrs = {}) {
    return n_.importer().Emit(op_name, std::move(inputs), std::move(attrs), Name(op_name));
  }

  // b [1, 8h] holds the biases of both products.
  Result AddBias(ValueId products) {
    if (!n_.HasInput(3)) return products;
    TW_ASSIGN(ValueId b, n_.Input(3));
    if (n_.importer().TypeOf(b).shape != std::vector<int64_t>{1, 8 * s_.hidden}) {
      return n_.Error("shape", StrCat("expected a bias of [1,", 8 * s_.hidden, "], found ",
                                      op::ToText(n_.importer().TypeOf(b))));
    }
    TW_ASSIGN(ValueId of_x, Sliced(n_, b, 1, 0, 1, 4 * s_.hidden, Name("bx")));
    TW_ASSIGN(ValueId of_h, Sliced(n_, b, 1, 4 * s_.hidden, 1, 4 * s_.hidden, Name("bh")));
    TW_ASSIGN(ValueId sum, Emit("add", {of_x, of_h}));
    return Emit("add", {products, sum});
  }

  Result State(int input) {
    const std::vector<int64_t> shape = {s_.batch, s_.hidden};
    if (n_.HasInput(input)) {
      TW_ASSIGN(ValueId given, n_.Input(input));
      return Reshaped(n_, given, shape, Name("initial"));
    }
    op::RefTensor zeros{{n_.importer().TypeOf(*n_.Input(0)).dtype, shape}, {}};
    zeros.values.assign(zeros.type.elements(), 0);
    return n_.importer().Constant(Name("initial"), zeros.type, op::ToBytes(zeros));
  }

  // ONNX orders the gates input, output, forget, cell.
  absl::Status Step(ValueId input, ValueId r, ValueId* h, ValueId* c) {
    TW_ASSIGN(ValueId product, Emit("dense", {*h, r}, {{"weight_layout", std::string("NK")}}));
    TW_ASSIGN(ValueId gates, Emit("add", {product, input}));
    std::vector<ValueId> gate;
    for (int g = 0; g < 4; ++g) {
      TW_ASSIGN(ValueId part, Sliced(n_, gates, 1, g * s_.hidden, 1, s_.hidden, Name("gate")));
      TW_ASSIGN(part, Emit(g == 3 ? "tanh" : "sigmoid", {part}));
      gate.push_back(part);
    }
    TW_ASSIGN(ValueId kept, Emit("mul", {gate[2], *c}));
    TW_ASSIGN(ValueId added, Emit("mul", {gate[0], gate[3]}));
    TW_ASSIGN(*c, Emit("add", {kept, added}));
    TW_ASSIGN(ValueId shown, Emit("tanh", {*c}));
    TW_ASSIGN(*h, Emit("mul", {gate[1], shown}));
    return absl::OkStatus();
  }

  NodeReader& n_;
  const LstmShape s_;
};

}  // namespace

Result ImportLstm(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  TW_ASSIGN(ValueId w, n.Input(1));
  TW_ASSIGN(ValueId r, n.Input(2));
  TW_ASSIGN(const LstmShape shape, CheckLstm(n, x, w, r));
  return LstmBuilder(n, shape).Run(x, w, r);
}

}  // namespace tilewright::graph::onnx
