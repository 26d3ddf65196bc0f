// RNN, GRU and LSTM: the products with the input are one matrix product for all steps, each step
// adds the product with the state and applies the gates. A fixed number of steps is unrolled: they
// have equal shapes, so that all of them are the same few tasks. An open number is one operator,
// which loops (row "recurrent").
#include <algorithm>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

constexpr int64_t kMaxSteps = 4096;

enum class Cell { kRnn, kGru, kLstm };

// What the three cells differ in: gates per hidden unit, activations per direction, defaults.
struct CellForm {
  std::string_view onnx;
  Cell cell;
  int64_t gates;
  std::vector<std::string> activations;
};
CellForm FormOf(const std::string& op_type) {
  if (op_type == "RNN") return {"RNN", Cell::kRnn, 1, {"tanh"}};
  if (op_type == "GRU") return {"GRU", Cell::kGru, 3, {"sigmoid", "tanh"}};
  return {"LSTM", Cell::kLstm, 4, {"sigmoid", "tanh", "tanh"}};
}

struct Activation {
  std::string name;
  double alpha, beta;
};
struct ActivationRow {
  std::string_view name;
  bool has_alpha, has_beta;
  double alpha, beta;  // defaults
};
constexpr ActivationRow kActivations[] = {
    {"affine", true, true, 1, 0},           {"elu", true, false, 1, 0},
    {"hardsigmoid", true, true, 0.2, 0.5},  {"leakyrelu", true, false, 0.01, 0},
    {"relu", false, false, 0, 0},           {"scaledtanh", true, true, 1, 1},
    {"sigmoid", false, false, 0, 0},        {"softplus", false, false, 0, 0},
    {"softsign", false, false, 0, 0},       {"tanh", false, false, 0, 0},
    {"thresholdedrelu", true, false, 1, 0},
};

// Activations of all directions. The lists of parameters have a value for each activation that
// takes one, in order.
absl::StatusOr<std::vector<Activation>> ReadActivations(NodeReader& n, const CellForm& form,
                                                        size_t directions) {
  std::vector<std::string> names;
  if (const pb::AttributeProto* given = n.Find("activations")) {
    names.assign(given->strings().begin(), given->strings().end());
  } else {
    for (size_t d = 0; d < directions; ++d) {
      names.insert(names.end(), form.activations.begin(), form.activations.end());
    }
  }
  if (names.size() != directions * form.activations.size()) {
    return n.Error("attribute", StrCat("expected ", directions * form.activations.size(),
                                       " activations, found ", names.size()));
  }
  std::vector<double> alphas, betas;
  if (const auto* list = n.Find("activation_alpha")) {
    alphas.assign(list->floats().begin(), list->floats().end());
  }
  if (const auto* list = n.Find("activation_beta")) {
    betas.assign(list->floats().begin(), list->floats().end());
  }
  std::vector<Activation> result;
  size_t alpha = 0, beta = 0;
  for (const std::string& given : names) {
    const std::string name = support::ToLower(given);
    const ActivationRow* row = std::find_if(std::begin(kActivations), std::end(kActivations),
                                            [&](auto& r) { return r.name == name; });
    if (row == std::end(kActivations)) {
      return n.Error("attribute", "expected a known activation, found " + support::Quote(given));
    }
    Activation a{name, row->alpha, row->beta};
    if (row->has_alpha && alpha < alphas.size()) a.alpha = alphas[alpha++];
    if (row->has_beta && beta < betas.size()) a.beta = betas[beta++];
    result.push_back(std::move(a));
  }
  return result;
}

class RecurrentBuilder {
 public:
  explicit RecurrentBuilder(NodeReader& n) : n_(n), c_(n), form_(FormOf(n.op_type())) {}

  Result Run() {
    x_ = c_.Input(0), w_ = c_.Input(1), r_ = c_.Input(2);
    bias_ = c_.OptionalInput(3);
    lengths_ = c_.OptionalInput(4);
    TW_TRY(c_.status());
    TW_TRY(ReadAttributes());
    TW_TRY(CheckShapes());
    TW_TRY(ReadLengths());
    std::vector<ValueId> all, last_h, last_c;
    for (int64_t d = 0; d < directions_; ++d) {
      TW_ASSIGN(Direction done, RunDirection(d));
      all.push_back(done.all);
      last_h.push_back(done.h);
      last_c.push_back(done.c);
    }
    if (n_.HasOutput(1)) TW_TRY(BindState(1, last_h));
    if (n_.HasOutput(2) && form_.cell == Cell::kLstm) TW_TRY(BindState(2, last_c));
    const ValueId y = c_.Concat(all, 1);  // [steps, directions, batch, hidden]
    return c_.Done(batch_first_ ? c_.Transpose(y, {2, 0, 1, 3}) : y);
  }

 private:
  struct Direction {
    ValueId all, h, c;
  };

  absl::Status ReadAttributes() {
    TW_ASSIGN(const std::string direction, n_.String("direction", "forward"));
    if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
      return n_.Error("attribute",
                      "expected a known direction, found " + support::Quote(direction));
    }
    directions_ = direction == "bidirectional" ? 2 : 1;
    reverse_ = direction == "reverse";
    TW_ASSIGN(activations_, ReadActivations(n_, form_, static_cast<size_t>(directions_)));
    TW_ASSIGN(clip_, n_.Float("clip", 0));
    TW_ASSIGN(const int64_t layout, n_.Int("layout", 0));
    batch_first_ = layout != 0;
    TW_ASSIGN(const int64_t forget, n_.Int("input_forget", 0));
    couples_ = forget != 0;
    TW_ASSIGN(const int64_t linear, n_.Int("linear_before_reset", 0));
    linear_before_reset_ = linear != 0;
    return absl::OkStatus();
  }

  absl::Status CheckShapes() {
    if (c_.Rank(x_) == 3 && batch_first_) x_ = c_.Transpose(x_, {1, 0, 2});
    const std::vector<op::Dim> x = c_.Dims(x_);
    const std::vector<int64_t> w = c_.Shape(w_), r = c_.Shape(r_);
    TW_TRY(c_.status());
    const int64_t gates = form_.gates;
    const bool fine = x.size() == 3 && w.size() == 3 && r.size() == 3 && w[0] == directions_ &&
                      r[0] == directions_ && w[1] == r[1] && w[1] == gates * r[2] &&
                      (!x[2].is_constant() || x[2] == op::Dim(w[2]));
    if (fine && !x[0].is_constant() && c_.TypeOf(x_).dtype.bits < 32) {
      return n_.Error("open_size",
                      StrCat("expected floats of at least 32 bits in an open number of "
                             "steps, found ",
                             op::ToText(c_.TypeOf(x_)), kGiveNumbers));
    }
    if (!fine || x[0].constant().value_or(0) > kMaxSteps) {
      return n_.Error("shape", StrCat("expected x [t<=", kMaxSteps, ",n,i], w [", directions_, ",",
                                      gates, "h,i] and r [", directions_, ",", gates,
                                      "h,h], found ", op::ToText(c_.TypeOf(x_)), ", ",
                                      op::ToText(c_.TypeOf(w_)), ", ", op::ToText(c_.TypeOf(r_))));
    }
    steps_ = x[0], batch_ = x[1], inputs_ = w[2], hidden_ = r[2];
    type_ = c_.TypeOf(x_).dtype;
    const std::vector<int64_t> of_bias = {directions_, 2 * gates * hidden_};
    if (bias_ != kNone && c_.Shape(bias_) != of_bias) {
      return n_.Error("shape", StrCat("expected a bias of [", directions_, ",", of_bias[1],
                                      "], found ", op::ToText(c_.TypeOf(bias_))));
    }
    if (form_.cell != Cell::kLstm || !n_.HasInput(7)) return c_.status();
    peepholes_ = c_.Input(7);
    if (c_.Shape(peepholes_) == std::vector<int64_t>{directions_, 3 * hidden_}) return c_.status();
    return n_.Error("shape", StrCat("expected peepholes of [", directions_, ",", 3 * hidden_, "]"));
  }

  // Whole sequences need no masks.
  absl::Status ReadLengths() {
    if (lengths_ == kNone) return absl::OkStatus();
    if (c_.Rank(lengths_) != 1) return n_.Error("shape", "expected a list of sequence_lens");
    if (c_.TypeOf(lengths_).fixed() && batch_.is_constant() && c_.Dims(lengths_)[0] != batch_) {
      return n_.Error("shape", StrCat("expected ", batch_.ToText(), " sequence_lens"));
    }
    const std::optional<std::vector<int64_t>> known = n_.importer().ConstantInts(lengths_);
    if (known && steps_.is_constant() &&
        std::all_of(known->begin(), known->end(),
                    [&](int64_t length) { return length >= steps_.value(); })) {
      lengths_ = kNone;
      return absl::OkStatus();
    }
    lengths_ = c_.ReshapeTo(lengths_, {batch_, 1});
    return c_.status();
  }

  absl::Status BindState(int output, const std::vector<ValueId>& states) {
    ValueId state = c_.Concat(states, 0);  // [directions, batch, hidden]
    if (batch_first_) state = c_.Transpose(state, {1, 0, 2});
    TW_TRY(c_.status());
    return n_.BindOutput(output, state);
  }

  // The state before the first step: [batch, hidden].
  bool StartsFromZero() {
    if (!n_.HasInput(5)) return true;
    const ValueId given = n_.importer().BeforeExpand(c_.Input(5));
    const std::optional<NumberRange> range = n_.importer().RangeOfConstant(given);
    return range && range->low == 0 && range->high == 0;
  }

  ValueId Initial(int input, int64_t d) {
    if (!n_.HasInput(input)) return c_.BroadcastTo(c_.Scalar(0, type_), {batch_, hidden_});
    const ValueId given = c_.Input(input);
    const int64_t axis = batch_first_ ? 1 : 0;
    if (c_.ok() && (c_.Rank(given) != 3 || c_.Dims(given)[axis] != op::Dim(directions_))) {
      return c_.Fail("shape", "expected an initial state per direction");
    }
    return c_.ReshapeTo(c_.Slice(given, axis, d, 1), {batch_, hidden_});
  }

  ValueId OfDirection(ValueId x, int64_t d, std::vector<int64_t> shape) {
    return c_.Reshape(c_.Slice(x, 0, d, 1), std::move(shape));
  }
  ValueId Dense(ValueId x, ValueId w) {
    return c_.Op("dense", {x, w}, {{"weight_layout", std::string("NK")}});
  }
  ValueId Gate(ValueId gates, int64_t g, int64_t count = 1) {
    return c_.Slice(gates, 1, g * hidden_, count * hidden_);
  }

  absl::StatusOr<Direction> RunDirection(int64_t d) {
    const int64_t wide = form_.gates * hidden_;
    const ValueId rows = c_.ReshapeTo(x_, {steps_ * batch_, inputs_});
    const ValueId w = OfDirection(w_, d, {wide, inputs_});
    recurrent_ = OfDirection(r_, d, {wide, hidden_});
    ValueId products = Dense(rows, w);
    recurrent_bias_ = kNone;
    if (bias_ != kNone) products = c_.Add(products, InputBias(d));
    for (int p = 0; peepholes_ != kNone && p < 3; ++p) {
      peephole_[p] = Gate(c_.Slice(peepholes_, 0, d, 1), p);
    }
    const size_t each = form_.activations.size();
    activation_ = activations_.data() + static_cast<size_t>(d) * each;
    const bool backwards = reverse_ || d == 1;
    if (!steps_.is_constant()) return OpenSteps(d, products, backwards);
    ValueId h = Initial(5, d), cell = form_.cell == Cell::kLstm ? Initial(6, d) : kNone;
    const int64_t steps = steps_.value();
    std::vector<ValueId> outputs(static_cast<size_t>(steps));
    for (int64_t i = 0; i < steps && c_.ok(); ++i) {
      const int64_t t = backwards ? steps - 1 - i : i;
      const ValueId input = c_.Slice(products, 0, op::Dim(t) * batch_, batch_);
      const ValueId old_h = h, old_cell = cell;
      if (form_.cell == Cell::kRnn) h = RnnStep(input, h);
      if (form_.cell == Cell::kGru) h = GruStep(input, h);
      if (form_.cell == Cell::kLstm) LstmStep(input, &h, &cell);
      outputs[t] = h;
      if (lengths_ == kNone) continue;
      // Behind the end of a sequence the state stays, the output is zero.
      const ValueId inside =
          c_.Op("less", {c_.Scalar(static_cast<double>(t), c_.TypeOf(lengths_).dtype), lengths_});
      outputs[t] = c_.Op("where", {inside, h, c_.Scalar(0, type_)});
      h = c_.Op("where", {inside, h, old_h});
      if (cell != kNone) cell = c_.Op("where", {inside, cell, old_cell});
    }
    TW_TRY(c_.status());
    const ValueId all = c_.ReshapeTo(c_.Concat(outputs, 0), {steps_, 1, batch_, hidden_});
    const std::vector<op::Dim> state = {1, batch_, hidden_};
    return Direction{all, c_.ReshapeTo(h, state),
                     cell == kNone ? kNone : c_.ReshapeTo(cell, state)};
  }

  // The elements along dimension 0 from the last to the first.
  ValueId Turned(ValueId x) { return c_.Slice(x, 0, steps_ - op::Dim(1), steps_, -1); }

  // All steps as one operator, whose results are the states before the first step and after each.
  absl::StatusOr<Direction> OpenSteps(int64_t d, ValueId products, bool backwards) {
    const int64_t wide = form_.gates * hidden_;
    const op::Dim one(1);
    products = c_.ReshapeTo(products, {steps_, batch_, wide});
    if (backwards) products = Turned(products);
    const ValueId weights =
        c_.Reshape(c_.Transpose(recurrent_, {1, 0}), {hidden_, form_.gates, hidden_});
    std::vector<ValueId> operands = {products, weights, Initial(5, d)};
    op::Attrs attrs = {{"cell", support::ToLower(form_.onnx)},
                       {"clip", clip_},
                       {"couples", static_cast<int64_t>(couples_)},
                       {"linear_before_reset", static_cast<int64_t>(linear_before_reset_)}};
    std::vector<std::string> names;
    std::vector<double> alphas, betas;
    for (size_t i = 0; i < form_.activations.size(); ++i) {
      names.push_back(RowName(activation_[i].name));
      alphas.push_back(activation_[i].alpha);
      betas.push_back(activation_[i].beta);
    }
    attrs["activations"] = support::Join(names, " ");
    attrs["alphas"] = std::move(alphas);
    attrs["betas"] = std::move(betas);
    const auto add = [&](const char* flag, ValueId operand) {
      attrs[flag] = int64_t{1};
      operands.push_back(operand);
    };
    if (StartsFromZero()) attrs["from_zero"] = int64_t{1};
    const bool lstm = form_.cell == Cell::kLstm;
    if (lstm) operands.push_back(Initial(6, d));
    if (peepholes_ != kNone) {
      add("peepholes", c_.Reshape(c_.Slice(peepholes_, 0, d, 1), {3, hidden_}));
    }
    if (recurrent_bias_ != kNone) add("recurrent_bias", c_.Reshape(recurrent_bias_, {hidden_}));
    ValueId inside = kNone;  // [steps, batch]: before the end of its sequence
    if (lengths_ != kNone) {
      const ValueId t = c_.Counting(c_.TypeOf(lengths_).dtype, steps_, 0, 2);
      inside = c_.Op("less", {t, c_.ReshapeTo(lengths_, {1, batch_})});
      add("masked", backwards ? Turned(inside) : inside);
    }
    const ValueId states = c_.Op("recurrent", std::move(operands), std::move(attrs));
    ValueId all = c_.Slice(c_.Slice(states, 0, 1, steps_), 1, 0, one);
    if (backwards) all = Turned(all);
    if (inside != kNone) {
      const ValueId flags = c_.ReshapeTo(inside, {steps_, 1, batch_, 1});
      all = c_.Op("where", {flags, all, c_.Scalar(0, type_)});
    }
    const ValueId last = c_.Slice(states, 0, steps_, one);
    const auto state = [&](int64_t which) {
      return c_.ReshapeTo(c_.Slice(last, 1, which, one), {1, batch_, hidden_});
    };
    const ValueId h = state(0), cell = lstm ? state(1) : kNone;
    TW_TRY(c_.status());
    return Direction{all, h, cell};
  }

  // As the row has it.
  static std::string RowName(const std::string& name) {
    if (name == "hardsigmoid") return "hard_sigmoid";
    if (name == "leakyrelu") return "leaky_relu";
    if (name == "scaledtanh") return "scaled_tanh";
    return name == "thresholdedrelu" ? "thresholded_relu" : name;
  }

  // Both biases at once; a GRU that is linear before its reset keeps that of the state apart.
  ValueId InputBias(int64_t d) {
    const int64_t wide = form_.gates * hidden_;
    const ValueId both = c_.Slice(bias_, 0, d, 1);
    const ValueId of_x = c_.Slice(both, 1, 0, wide), of_h = c_.Slice(both, 1, wide, wide);
    if (form_.cell != Cell::kGru || !linear_before_reset_) return c_.Add(of_x, of_h);
    recurrent_bias_ = Gate(of_h, 2);
    const ValueId gates = c_.Add(Gate(of_x, 0, 2), Gate(of_h, 0, 2));
    return c_.Concat({gates, Gate(of_x, 2)}, 1);
  }

  ValueId Activate(int which, ValueId x) {
    if (clip_ > 0) x = c_.Op("clip", {x}, {{"min", -clip_}, {"max", clip_}});
    const Activation& a = activation_[which];
    auto number = [&](double value) { return c_.Scalar(value, type_); };
    if (a.name == "affine") return c_.Add(c_.Mul(x, number(a.alpha)), number(a.beta));
    if (a.name == "scaledtanh") {
      return c_.Mul(c_.Op("tanh", {c_.Mul(x, number(a.beta))}), number(a.alpha));
    }
    if (a.name == "leakyrelu") return c_.Op("leaky_relu", {x}, {{"alpha", a.alpha}});
    if (a.name == "elu") return c_.Op("elu", {x}, {{"alpha", a.alpha}});
    if (a.name == "hardsigmoid") {
      return c_.Op("hard_sigmoid", {x}, {{"alpha", a.alpha}, {"beta", a.beta}});
    }
    if (a.name == "thresholdedrelu") {
      return c_.Op("where", {c_.Op("less", {number(a.alpha), x}), x, number(0)});
    }
    return c_.Op(a.name, {x});
  }

  ValueId RnnStep(ValueId input, ValueId h) {
    return Activate(0, c_.Add(Dense(h, recurrent_), input));
  }

  // ONNX orders the gates update, reset, hidden.
  ValueId GruStep(ValueId input, ValueId h) {
    ValueId update, reset, hidden;
    if (linear_before_reset_) {
      const ValueId product = Dense(h, recurrent_);
      const ValueId gates = c_.Add(Gate(product, 0, 2), Gate(input, 0, 2));
      update = Activate(0, Gate(gates, 0));
      reset = Activate(0, Gate(gates, 1));
      ValueId of_h = Gate(product, 2);
      if (recurrent_bias_ != kNone) of_h = c_.Add(of_h, recurrent_bias_);
      hidden = c_.Add(c_.Mul(reset, of_h), Gate(input, 2));
    } else {
      const ValueId of_gates = c_.Slice(recurrent_, 0, 0, 2 * hidden_);
      const ValueId of_hidden = c_.Slice(recurrent_, 0, 2 * hidden_, hidden_);
      const ValueId gates = c_.Add(Dense(h, of_gates), Gate(input, 0, 2));
      update = Activate(0, Gate(gates, 0));
      reset = Activate(0, Gate(gates, 1));
      hidden = c_.Add(Dense(c_.Mul(reset, h), of_hidden), Gate(input, 2));
    }
    hidden = Activate(1, hidden);
    const ValueId fresh = c_.Mul(c_.Sub(c_.Scalar(1, type_), update), hidden);
    return c_.Add(fresh, c_.Mul(update, h));
  }

  // ONNX orders the gates input, output, forget, cell.
  void LstmStep(ValueId input, ValueId* h, ValueId* cell) {
    const ValueId gates = c_.Add(Dense(*h, recurrent_), input);
    auto gate = [&](int64_t g, int peephole, ValueId state) {
      ValueId x = Gate(gates, g);
      if (peepholes_ != kNone) x = c_.Add(x, c_.Mul(peephole_[peephole], state));
      return Activate(0, x);
    };
    const ValueId in = gate(0, 0, *cell);
    const ValueId output = peepholes_ == kNone ? gate(1, 1, kNone) : kNone;
    const ValueId forget = couples_ ? c_.Sub(c_.Scalar(1, type_), in) : gate(2, 2, *cell);
    const ValueId fresh = Activate(1, Gate(gates, 3));
    *cell = c_.Add(c_.Mul(forget, *cell), c_.Mul(in, fresh));
    // The output's peephole sees the new cell.
    const ValueId shown = output == kNone ? gate(1, 1, *cell) : output;
    *h = c_.Mul(shown, Activate(2, *cell));
  }

  NodeReader& n_;
  Composer c_;
  const CellForm form_;
  std::vector<Activation> activations_;
  const Activation* activation_ = nullptr;  // of the direction
  ValueId x_ = kNone, w_ = kNone, r_ = kNone, bias_ = kNone, lengths_ = kNone;
  ValueId peepholes_ = kNone, peephole_[3] = {kNone, kNone, kNone};
  ValueId recurrent_ = kNone, recurrent_bias_ = kNone;  // of the direction
  int64_t directions_ = 1, inputs_ = 0, hidden_ = 0;
  op::Dim steps_, batch_;
  double clip_ = 0;
  bool reverse_ = false, batch_first_ = false, couples_ = false, linear_before_reset_ = false;
  ir::DType type_ = ir::kF32;
};

}  // namespace

Result ImportRecurrent(NodeReader& n) { return RecurrentBuilder(n).Run(); }

}  // namespace tilewright::graph::onnx
