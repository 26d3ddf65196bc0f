// A recurrent layer over an open number of steps: one kernel with a serial loop over time, whose
// state carries from step to step. (A known number of steps is unrolled by the import instead: its
// products are tasks of their own.)
#include <algorithm>
#include <cmath>
#include <optional>

#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

constexpr std::string_view kOp = "recurrent";
// Weights of the state: terms of the sums, gates, hidden units.
constexpr std::string_view kWeights = "KGU";

// What the cells differ in: gates and states per hidden unit, activations.
struct CellRow {
  std::string_view name;
  int64_t gates, states;
  size_t activations;
};
constexpr CellRow kCells[] = {{"rnn", 1, 1, 1}, {"gru", 3, 1, 2}, {"lstm", 4, 2, 3}};

// An activation by its name: the row of the operator that computes it, and the parameters that it
// has. Affine, scaled and thresholded ones are more than their row.
struct Activation {
  std::string_view name, row;
  bool has_alpha = false, has_beta = false;
};
constexpr Activation kActivations[] = {
    {"affine", "identity", true, true},
    {"elu", "elu", true},
    {"hard_sigmoid", "hard_sigmoid", true, true},
    {"leaky_relu", "leaky_relu", true},
    {"relu", "relu"},
    {"scaled_tanh", "tanh", true, true},
    {"sigmoid", "sigmoid"},
    {"softplus", "softplus"},
    {"softsign", "softsign"},
    {"tanh", "tanh"},
    {"thresholded_relu", "relu", true},
};

// The attributes, and the operands by what they are.
struct Layer {
  const CellRow* cell = nullptr;
  std::vector<const Activation*> activations;
  std::vector<double> alphas, betas;
  double clip = 0;
  bool linear_before_reset = false, couples = false, from_zero = false;
  // Positions of operands; -1 where there is none.
  int c0 = -1, peepholes = -1, bias = -1, mask = -1;
  Dim steps, batch;
  int64_t hidden = 0;
  Layout weights{kWeights};
  int64_t units = 0;  // hidden ones, and what fills the last block of the weights
  int64_t wide() const { return cell->gates * hidden; }
};

absl::Status BadLayer(std::string_view reason, std::string_view detail) {
  return OpError(kOp, reason, detail);
}

absl::StatusOr<Layer> ReadAttributes(const Attrs& attrs) {
  Layer layer;
  const std::string cell = GetString(attrs, "cell", "");
  for (const CellRow& row : kCells) {
    if (row.name == cell) layer.cell = &row;
  }
  if (layer.cell == nullptr) {
    return BadLayer("attribute", StrCat("expected cell rnn, gru or lstm, found ", cell));
  }
  const std::string list = GetString(attrs, "activations", "");
  for (const std::string_view name : support::Split(list, ' ')) {
    const auto row = std::find_if(std::begin(kActivations), std::end(kActivations),
                                  [&](const Activation& a) { return a.name == name; });
    if (row != std::end(kActivations)) layer.activations.push_back(row);
  }
  const auto parameters = [&](const char* name) {
    const auto it = attrs.find(name);
    const auto* values =
        it == attrs.end() ? nullptr : std::get_if<std::vector<double>>(&it->second);
    return values == nullptr ? std::vector<double>{} : *values;
  };
  layer.alphas = parameters("alphas");
  layer.betas = parameters("betas");
  const size_t count = layer.cell->activations;
  if (layer.activations.size() != count || layer.alphas.size() != count ||
      layer.betas.size() != count) {
    return BadLayer("attribute",
                    StrCat("expected ", count, " activations, alphas and betas, found ", list));
  }
  layer.clip = GetDouble(attrs, "clip", 0);
  layer.linear_before_reset = GetInt(attrs, "linear_before_reset", 0) != 0;
  layer.couples = GetInt(attrs, "couples", 0) != 0;
  layer.from_zero = GetInt(attrs, "from_zero", 0) != 0;
  int next = 3;
  if (layer.cell->states == 2) layer.c0 = next++;
  if (GetInt(attrs, "peepholes", 0) != 0) layer.peepholes = next++;
  if (GetInt(attrs, "recurrent_bias", 0) != 0) layer.bias = next++;
  if (GetInt(attrs, "masked", 0) != 0) layer.mask = next++;
  TW_ASSIGN(layer.weights, LayoutAttr(kOp, attrs, "weight_layout", kWeights));
  return layer;
}

// x [t,n,gates*h]: products of the input with its weights, with biases. r [h,gates,h] in the layout
// `weight_layout`: weights of the state. h0 [n,h]. Then, as far as there are any: c0 [n,h] of lstm,
// peepholes [3,h] of lstm, a bias [h] of gru that is inside of its reset, and a mask [t,n] of steps
// that count. The result has the states before the first step, and after each: [t + 1,states,n,h].
// With `from_zero` h0 is zero: the first step's sums leave it out, and read no weights.
absl::StatusOr<Layer> LayerOf(std::span<const TensorType> inputs, const Attrs& attrs,
                              DimEqualities* equal) {
  TW_ASSIGN(Layer layer, ReadAttributes(attrs));
  const TensorType &x = inputs[0], &r = inputs[1];
  const int count =
      3 + (layer.c0 >= 0) + (layer.peepholes >= 0) + (layer.bias >= 0) + (layer.mask >= 0);
  if (static_cast<int>(inputs.size()) != count) {
    return BadLayer("inputs", StrCat("expected ", count, " operands, found ", inputs.size()));
  }
  const auto sizes = layer.weights.SizesOf(r.shape, equal);
  if (x.rank() != 3 || !sizes.has_value()) {
    return BadLayer("shape", StrCat("expected [t,n,g] and weights ", layer.weights.ToText(),
                                    ", found ", ToText(x), " and ", ToText(r)));
  }
  layer.steps = x.shape[0];
  layer.batch = x.shape[1];
  TW_ASSIGN(layer.hidden, Fixed(kOp, (*sizes)[0]));
  TW_ASSIGN(layer.units, Fixed(kOp, (*sizes)[2]));
  const Dim h = layer.hidden;
  const int64_t block = layer.weights.Block('U');
  if (r.dtype != x.dtype || (*sizes)[1] != Dim(layer.cell->gates) ||
      layer.units != (layer.hidden + block - 1) / block * block) {
    return BadLayer("shape", StrCat("expected weights of ", layer.cell->gates, " gates of ",
                                    layer.hidden, " units, found ", ToText(r)));
  }
  const auto check = [&](int i, const std::vector<Dim>& wanted, bool flags) -> absl::Status {
    if (i < 0) return absl::OkStatus();
    const TensorType& in = inputs[static_cast<size_t>(i)];
    const bool type = flags ? in.dtype.is_bool() : in.dtype == x.dtype;
    if (type && x.dtype.is_float() && MayEqual(in.shape, wanted, equal)) return absl::OkStatus();
    return BadLayer("shape", StrCat("expected operand ", i, " of ", DimsText(wanted),
                                    flags ? " flags" : " floats", ", found ", ToText(in)));
  };
  TW_TRY(check(0, {layer.steps, layer.batch, layer.wide()}, false));
  TW_TRY(check(2, {layer.batch, h}, false));
  TW_TRY(check(layer.c0, {layer.batch, h}, false));
  TW_TRY(check(layer.peepholes, {3, h}, false));
  TW_TRY(check(layer.bias, {h}, false));
  TW_TRY(check(layer.mask, {layer.steps, layer.batch}, true));
  return layer;
}

absl::StatusOr<TensorTypes> InferRecurrent(std::span<const TensorType> inputs, const Attrs& attrs,
                                           DimEqualities* equal) {
  TW_ASSIGN(const Layer layer, LayerOf(inputs, attrs, equal));
  return TensorTypes{
      {inputs[0].dtype, {layer.steps + Dim(1), layer.cell->states, layer.batch, layer.hidden}}};
}

// ------------------------------------------------------------ compute

ir::Expr Activated(const Layer& layer, size_t which, ir::Expr x) {
  const auto number = [&](double value) { return ir::Float(value, x->dtype); };
  const Activation& a = *layer.activations[which];
  const double alpha = layer.alphas[which], beta = layer.betas[which];
  if (layer.clip > 0) x = ir::Min(number(layer.clip), ir::Max(number(-layer.clip), x));
  if (a.name == "affine") return x * number(alpha) + number(beta);
  if (a.name == "thresholded_relu") return ir::Select(number(alpha) < x, x, number(0));
  Attrs attrs;
  if (a.has_alpha) attrs["alpha"] = alpha;
  if (a.has_beta) attrs["beta"] = beta;
  if (a.name == "scaled_tanh") x = x * number(beta);
  const ir::Expr value = FindOp(a.row)->scalar({&x, 1}, attrs);
  return a.name == "scaled_tanh" ? value * number(alpha) : value;
}

class Builder {
 public:
  Builder(const ComputeArgs& a, Layer layer)
      : b_(a.b), name_(a.name), in_(a.inputs), layer_(std::move(layer)), type_(in_[0]->dtype) {
    batch_ = SizeExpr(b_, layer_.batch);
  }

  ir::Buffer Run() {
    const ir::Expr steps = SizeExpr(b_, layer_.steps), hidden = ir::Int(layer_.hidden);
    const bool two = layer_.cell->states == 2;
    state_ = b_.State(name_, type_, steps, {ir::Int(layer_.cell->states), batch_, hidden},
                      {"s", "n", "u"}, [&](const std::vector<ir::Var>& v) {
                        const ir::Expr h = ir::Load(in_[2], {v[1], v[2]});
                        if (!two) return h;
                        return ir::Select(ir::Eq(v[0], ir::Int(0)), h,
                                          ir::Load(in_[layer_.c0], {v[1], v[2]}));
                      });
    b_.BeginScan("t", steps);
    AddProducts();
    b_.Next(state_, {"s", "n", "u"}, [&](const std::vector<ir::Var>& v) {
      const At at{v[0], v[2], v[3]};
      ir::Expr value = NextOf(at, v[1]);
      if (layer_.mask < 0) return value;
      const ir::Expr counts = ir::Load(in_[layer_.mask], {at.t, at.n});
      return ir::Select(counts, value, ir::Load(state_, {v[0], v[1], v[2], v[3]}));
    });
    b_.EndScan();
    return state_;
  }

 private:
  struct At {
    ir::Expr t, n, u;
  };
  ir::Expr Number(double value) const { return ir::Float(value, type_); }
  ir::Expr GateAt(int64_t gate, const ir::Expr& u) const {
    return gate == 0 ? u : u + ir::Int(gate * layer_.hidden);
  }
  ir::Expr X(const At& at, int64_t gate) const {
    return ir::Load(in_[0], {at.t, at.n, GateAt(gate, at.u)});
  }
  ir::Expr State(const At& at, int64_t which) const {
    return ir::Load(state_, {at.t, ir::Int(which), at.n, at.u});
  }
  ir::Expr Product(const At& at, int64_t gate) const {
    return ir::Load(products_, {at.t, at.n, ir::Int(gate), at.u});
  }
  ir::Expr Gate(const At& at, int64_t gate) const { return Product(at, gate) + X(at, gate); }

  // The sums of what `factor` has for each unit with the weights of `gates` gates from `first` on.
  ir::Buffer Sums(const std::string& name, int64_t first, int64_t gates,
                  const std::function<ir::Expr(const At&)>& factor_at) {
    const auto factor = [&](const At& at) {
      const ir::Expr value = factor_at(at);
      return layer_.from_zero ? ir::Select(ir::Int(0) < at.t, value, Number(0)) : value;
    };
    const ir::Axis k = b_.ReduceAxis("k", ir::Int(layer_.hidden));
    return b_.Reduce(name, type_, {batch_, ir::Int(gates), ir::Int(layer_.units)}, {"n", "g", "u"},
                     {k}, ir::Combiner::kSum, [&](const std::vector<ir::Var>& v) {
                       const ir::Expr gate = first == 0 ? ir::Expr(v[2]) : v[2] + ir::Int(first);
                       const Place at[] = {{{k.var}}, {{gate}}, {{v[3]}}};
                       return factor({v[0], v[1], k.var}) *
                              ir::Load(in_[1], layer_.weights.Index(at));
                     });
  }

  bool ResetsFirst() const { return layer_.cell->gates == 3 && !layer_.linear_before_reset; }

  void AddProducts() {
    const auto state = [&](const At& at) { return State(at, 0); };
    const int64_t gates = ResetsFirst() ? 2 : layer_.cell->gates;
    products_ = Sums(name_ + "_gates", 0, gates, state);
    if (!ResetsFirst()) return;
    reset_ = b_.Compute(name_ + "_reset", type_, {batch_, ir::Int(layer_.hidden)}, {"n", "u"},
                        [&](const std::vector<ir::Var>& v) {
                          const At at{v[0], v[1], v[2]};
                          return Activated(layer_, 0, Gate(at, 1)) * State(at, 0);
                        });
    hidden_ = Sums(name_ + "_hidden", 2, 1,
                   [&](const At& at) { return ir::Load(reset_, {at.t, at.n, at.u}); });
  }

  ir::Expr NextOf(const At& at, const ir::Expr& which) const {
    if (layer_.cell->gates == 1) return Activated(layer_, 0, Gate(at, 0));
    if (layer_.cell->gates == 3) return NextOfGru(at);
    return NextOfLstm(at, which);
  }

  // Gates: update, reset, hidden.
  ir::Expr NextOfGru(const At& at) const {
    const ir::Expr update = Activated(layer_, 0, Gate(at, 0));
    ir::Expr hidden;
    if (ResetsFirst()) {
      hidden = ir::Load(hidden_, {at.t, at.n, ir::Int(0), at.u}) + X(at, 2);
    } else {
      ir::Expr of_state = Product(at, 2);
      if (layer_.bias >= 0) of_state = of_state + ir::Load(in_[layer_.bias], {at.u});
      hidden = Activated(layer_, 0, Gate(at, 1)) * of_state + X(at, 2);
    }
    hidden = Activated(layer_, 1, hidden);
    return (Number(1) - update) * hidden + update * State(at, 0);
  }

  // Gates: input, output, forget, cell. State 0 is the output, state 1 the cell.
  ir::Expr NextOfLstm(const At& at, const ir::Expr& which) const {
    const auto gate = [&](int64_t g, int64_t peephole, const ir::Expr& cell) {
      ir::Expr x = Gate(at, g);
      if (layer_.peepholes >= 0) {
        x = x + ir::Load(in_[layer_.peepholes], {ir::Int(peephole), at.u}) * cell;
      }
      return Activated(layer_, 0, x);
    };
    const ir::Expr old = State(at, 1), in = gate(0, 0, old);
    const ir::Expr forget = layer_.couples ? Number(1) - in : gate(2, 2, old);
    const ir::Expr cell = forget * old + in * Activated(layer_, 1, Gate(at, 3));
    const ir::Expr output = gate(1, 1, cell) * Activated(layer_, 2, cell);
    return ir::Select(ir::Eq(which, ir::Int(0)), output, cell);
  }

  ir::FunctionBuilder& b_;
  const std::string& name_;
  const std::span<const ir::Buffer> in_;
  const Layer layer_;
  const ir::DType type_;
  ir::Expr batch_;
  ir::Buffer state_, products_, reset_, hidden_;
};

absl::StatusOr<std::vector<ir::Buffer>> BuildRecurrent(const ComputeArgs& a) {
  DimEqualities equal;
  TW_ASSIGN(Layer layer, LayerOf(a.input_types, a.attrs, &equal));
  return std::vector<ir::Buffer>{Builder(a, std::move(layer)).Run()};
}

// ------------------------------------------------------------ reference

// Rounds after each operation, as the operators do that a fixed number of steps is made of.
class Cell {
 public:
  Cell(std::span<const RefTensor> in, const Layer& layer)
      : in_(in),
        layer_(layer),
        type_(in[0].type.dtype),
        hidden_(layer.hidden),
        weights_(layer.weights.Offsets({hidden_, layer.cell->gates, hidden_})) {}

  // From the states [states,n,h] before step t, those after it.
  std::vector<double> Next(const std::vector<double>& state, int64_t t, int64_t batch) {
    leaves_out_ = layer_.from_zero && t == 0;
    std::vector<double> next = state;
    for (int64_t n = 0; n < batch; ++n) {
      if (layer_.mask >= 0 && in_[layer_.mask].values[t * batch + n] == 0) continue;
      const double* h = &state[n * hidden_];
      const double* x = &in_[0].values[(t * batch + n) * layer_.wide()];
      const double* c = layer_.cell->states == 2 ? &state[(batch + n) * hidden_] : nullptr;
      for (int64_t u = 0; u < hidden_; ++u) {
        double* out = &next[n * hidden_ + u];
        if (layer_.cell->gates == 1) *out = Act(0, Gate(h, x, 0, u));
        if (layer_.cell->gates == 3) *out = Gru(h, x, u);
        if (c != nullptr) Lstm(h, x, c[u], u, out, &next[(batch + n) * hidden_ + u]);
      }
    }
    return next;
  }

 private:
  double R(double value) const { return RoundToType(value, type_); }
  double Sum(const double* factors, int64_t gate, int64_t u) const {
    if (leaves_out_) return 0;
    const double* column = &in_[1].values[weights_[1][gate] + weights_[2][u]];
    double sum = 0;
    for (int64_t k = 0; k < hidden_; ++k) sum += factors[k] * column[weights_[0][k]];
    return R(sum);
  }
  double Gate(const double* h, const double* x, int64_t gate, int64_t u) const {
    return R(Sum(h, gate, u) + x[gate * hidden_ + u]);
  }
  double Act(size_t which, double x) const {
    const Activation& a = *layer_.activations[which];
    const double alpha = R(layer_.alphas[which]), beta = R(layer_.betas[which]);
    if (layer_.clip > 0) x = R(std::clamp(x, -layer_.clip, layer_.clip));
    if (a.name == "affine") return R(R(x * alpha) + beta);
    if (a.name == "thresholded_relu") return alpha < x ? x : 0;
    Attrs attrs;
    if (a.has_alpha) attrs["alpha"] = layer_.alphas[which];
    if (a.has_beta) attrs["beta"] = layer_.betas[which];
    if (a.name == "scaled_tanh") x = R(x * beta);
    const double value = R(FindOp(a.row)->scalar_reference({&x, 1}, attrs));
    return a.name == "scaled_tanh" ? R(value * alpha) : value;
  }

  double Gru(const double* h, const double* x, int64_t u) const {
    const double update = Act(0, Gate(h, x, 0, u));
    double hidden = 0;
    if (layer_.linear_before_reset) {
      double of_state = Sum(h, 2, u);
      if (layer_.bias >= 0) of_state = R(of_state + in_[layer_.bias].values[u]);
      hidden = R(R(Act(0, Gate(h, x, 1, u)) * of_state) + x[2 * hidden_ + u]);
    } else {
      std::vector<double> reset;
      for (int64_t k = 0; k < hidden_; ++k) reset.push_back(R(Act(0, Gate(h, x, 1, k)) * h[k]));
      hidden = R(Sum(reset.data(), 2, u) + x[2 * hidden_ + u]);
    }
    hidden = Act(1, hidden);
    return R(R(R(1 - update) * hidden) + R(update * h[u]));
  }

  void Lstm(const double* h, const double* x, double old, int64_t u, double* out,
            double* cell) const {
    const auto gate = [&](int64_t g, int64_t peephole, double of_cell) {
      double value = Gate(h, x, g, u);
      if (layer_.peepholes >= 0) {
        value = R(value + R(in_[layer_.peepholes].values[peephole * hidden_ + u] * of_cell));
      }
      return Act(0, value);
    };
    const double in = gate(0, 0, old);
    const double forget = layer_.couples ? R(1 - in) : gate(2, 2, old);
    *cell = R(R(forget * old) + R(in * Act(1, Gate(h, x, 3, u))));
    *out = R(gate(1, 1, *cell) * Act(2, *cell));
  }

  const std::span<const RefTensor> in_;
  const Layer& layer_;
  const ir::DType type_;
  const int64_t hidden_;
  const std::vector<std::vector<int64_t>> weights_;  // offsets of terms, gates, units
  bool leaves_out_ = false;                          // the state, of sums
};

absl::StatusOr<std::vector<RefTensor>> PlainRecurrent(std::span<const RefTensor> inputs,
                                                      std::span<const TensorType> outputs,
                                                      const Attrs& attrs) {
  const TensorTypes types = TypesOf(inputs);
  DimEqualities equal;
  TW_ASSIGN(const Layer layer, LayerOf(types, attrs, &equal));
  Cell cell(inputs, layer);
  const int64_t batch = types[0].size(1);
  std::vector<double> state = inputs[2].values;
  if (layer.c0 >= 0) {
    const std::vector<double>& c0 = inputs[static_cast<size_t>(layer.c0)].values;
    state.insert(state.end(), c0.begin(), c0.end());
  }
  RefTensor out{outputs[0], state};
  for (int64_t t = 0; t < types[0].size(0); ++t) {
    state = cell.Next(state, t, batch);
    out.values.insert(out.values.end(), state.begin(), state.end());
  }
  return std::vector<RefTensor>{std::move(out)};
}

}  // namespace

std::vector<OpSpec> RecurrentRows() {
  OpSpec row;
  row.name = kOp;
  row.onnx = {"RNN", "GRU", "LSTM"};
  row.min_inputs = 3;
  row.max_inputs = 7;
  row.weight_layout = kWeights;
  row.types = kFloats | kBools;
  row.infer = InferRecurrent;
  row.compute = BuildRecurrent;
  row.flops = [](std::span<const TensorType> inputs, std::span<const TensorType>, const Attrs&) {
    return 2.0 * static_cast<double>(inputs[0].elements()) *
           static_cast<double>(inputs[2].size(-1));
  };
  row.reduction_length = [](std::span<const TensorType> inputs, const Attrs&) {
    return static_cast<double>(inputs[2].size(-1));
  };
  row.reference = PlainRecurrent;
  return {row};
}

}  // namespace tilewright::op
