// Import of operators that carry a state: linear attention and causal convolutions against loops
// in double by their definition, in one call and continued from call to call; refusals by slug.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;

// ------------------------------------------------------------ linear attention

struct Attention {
  std::string rule;
  int64_t batch = 2, length = 3, heads = 2, kv_heads = 2, key = 3, value = 4;
  bool decays_by_row = true, beta_per_head = true, past = true;
  double scale = 0;

  bool decays() const { return rule.starts_with("gated"); }
  bool corrects() const { return rule.ends_with("delta"); }
  int64_t decay_width() const { return kv_heads * (decays_by_row ? key : 1); }
  int64_t beta_width() const { return beta_per_head ? kv_heads : 1; }
  Shape state() const { return {batch, kv_heads, key, value}; }
};

int64_t Product(const Shape& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

OnnxBuilder ModelOf(const Attention& a) {
  OnnxBuilder b(27);
  b.Input("q", {a.batch, a.length, a.heads * a.key});
  b.Input("k", {a.batch, a.length, a.kv_heads * a.key});
  b.Input("v", {a.batch, a.length, a.kv_heads * a.value});
  std::vector<std::string> inputs = {"q", "k", "v", "", "", ""};
  if (a.past) b.Input(inputs[3] = "past", a.state());
  if (a.decays()) b.Input(inputs[4] = "decay", {a.batch, a.length, a.decay_width()});
  if (a.corrects()) b.Input(inputs[5] = "beta", {a.batch, a.length, a.beta_width()});
  b.Output("y", {a.batch, a.length, a.heads * a.value}).Output("present", a.state());
  pb::NodeProto* node = b.Node("LinearAttention", inputs, "y");
  node->add_output("present");
  OnnxBuilder::AttrText(node, "update_rule", a.rule);
  OnnxBuilder::Attr(node, "q_num_heads", a.heads);
  OnnxBuilder::Attr(node, "kv_num_heads", a.kv_heads);
  if (a.scale != 0) OnnxBuilder::AttrFloat(node, "scale", static_cast<float>(a.scale));
  return b;
}

// In the order of the model's inputs.
std::vector<RefTensor> OperandsOf(const Attention& a) {
  const auto random = [&](const Shape& shape, double scale, uint64_t seed) {
    return TensorOf(shape, Random(Product(shape), scale, seed));
  };
  std::vector<RefTensor> operands = {random({a.batch, a.length, a.heads * a.key}, 1, 1),
                                     random({a.batch, a.length, a.kv_heads * a.key}, 0.5, 2),
                                     random({a.batch, a.length, a.kv_heads * a.value}, 1, 3)};
  if (a.past) operands.push_back(random(a.state(), 1, 4));
  if (a.decays()) operands.push_back(random({a.batch, a.length, a.decay_width()}, 1, 5));
  if (a.corrects()) operands.push_back(random({a.batch, a.length, a.beta_width()}, 1, 6));
  return operands;
}

struct Results {
  Numbers y, state;
};

// The definition, token by token.
Results Expected(const Attention& a, const std::vector<RefTensor>& operands) {
  size_t next = 3;
  Results r{{}, Numbers(static_cast<size_t>(Product(a.state())), 0)};
  if (a.past) r.state = operands[next++].values;
  const Numbers* decay = a.decays() ? &operands[next++].values : nullptr;
  const Numbers* beta = a.corrects() ? &operands[next++].values : nullptr;
  const double scale = a.scale != 0 ? a.scale : 1 / std::sqrt(static_cast<double>(a.key));
  r.y.resize(static_cast<size_t>(a.batch * a.length * a.heads * a.value));
  for (int64_t b = 0; b < a.batch; ++b) {
    for (int64_t t = 0; t < a.length; ++t) {
      const int64_t row = b * a.length + t;
      for (int64_t h = 0; h < a.kv_heads; ++h) {
        double* s = &r.state[static_cast<size_t>((b * a.kv_heads + h) * a.key * a.value)];
        const double* k = &operands[1].values[static_cast<size_t>((row * a.kv_heads + h) * a.key)];
        for (int64_t d = 0; decay != nullptr && d < a.key; ++d) {
          const int64_t at = row * a.decay_width() + (a.decays_by_row ? h * a.key + d : h);
          for (int64_t e = 0; e < a.value; ++e) {
            s[d * a.value + e] *= std::exp((*decay)[static_cast<size_t>(at)]);
          }
        }
        for (int64_t e = 0; e < a.value; ++e) {
          double v = operands[2].values[static_cast<size_t>((row * a.kv_heads + h) * a.value + e)];
          if (beta != nullptr) {
            for (int64_t d = 0; d < a.key; ++d) v -= s[d * a.value + e] * k[d];
            v *= (*beta)[static_cast<size_t>(row * a.beta_width() + (a.beta_per_head ? h : 0))];
          }
          for (int64_t d = 0; d < a.key; ++d) s[d * a.value + e] += k[d] * v;
        }
      }
      for (int64_t h = 0; h < a.heads; ++h) {
        const int64_t own = h / (a.heads / a.kv_heads);
        const double* s = &r.state[static_cast<size_t>((b * a.kv_heads + own) * a.key * a.value)];
        for (int64_t e = 0; e < a.value; ++e) {
          double sum = 0;
          for (int64_t d = 0; d < a.key; ++d) {
            sum += operands[0].values[static_cast<size_t>((row * a.heads + h) * a.key + d)] *
                   s[d * a.value + e];
          }
          r.y[static_cast<size_t>((row * a.heads + h) * a.value + e)] = scale * sum;
        }
      }
    }
  }
  return r;
}

void ExpectAttention(const Attention& a) {
  SCOPED_TRACE(a.rule);
  const std::vector<RefTensor> operands = OperandsOf(a);
  const auto found = tests::EvaluateOnnx(ModelOf(a), operands, 1e-5);
  const Results expected = Expected(a, operands);
  ExpectNear(found[0], {a.batch, a.length, a.heads * a.value}, expected.y, 1e-5);
  ExpectNear(found[1], a.state(), expected.state, 1e-5);
}

TEST(OnnxLinearAttention, FollowsEachRule) {
  for (const char* rule : {"linear", "gated", "delta", "gated_delta"}) {
    ExpectAttention({.rule = rule});
    ExpectAttention({.rule = rule, .length = 1, .decays_by_row = false, .past = false});
    ExpectAttention({.rule = rule, .heads = 6, .beta_per_head = false, .scale = 0.7});
    ExpectAttention({.rule = rule, .heads = 3, .kv_heads = 1, .key = 1, .value = 1});
  }
}

// Tokens one at a time, each from the state of the one before, find what all at once find.
TEST(OnnxLinearAttention, ContinuesFromItsState) {
  Attention whole{.rule = "gated_delta", .batch = 1, .length = 4, .heads = 4};
  const std::vector<RefTensor> operands = OperandsOf(whole);
  const Results expected = Expected(whole, operands);
  Attention one = whole;
  one.length = 1;
  RefTensor state = operands[3];
  for (int64_t t = 0; t < whole.length; ++t) {
    std::vector<RefTensor> step;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (i == 3) {
        step.push_back(state);
        continue;
      }
      const int64_t width = operands[i].type.size(2);
      const auto from = operands[i].values.begin() + t * width;
      step.push_back(TensorOf({1, 1, width}, Numbers(from, from + width)));
    }
    const auto found = tests::EvaluateOnnx(ModelOf(one), step, 1e-5);
    const int64_t width = whole.heads * whole.value;
    const auto row = expected.y.begin() + t * width;
    ExpectNear(found[0], {1, 1, width}, Numbers(row, row + width), 1e-5);
    state = found[1];
  }
  ExpectNear(state, whole.state(), expected.state, 1e-5);
}

// Halves are computed in f32; the state keeps its own type.
TEST(OnnxLinearAttention, HalvesWithAStateOfFloats) {
  const Attention a{.rule = "delta"};
  OnnxBuilder b = ModelOf(a);
  for (auto& input : *b.graph().mutable_input()) {
    if (input.name() == "past") continue;
    input.mutable_type()->mutable_tensor_type()->set_elem_type(pb::TensorProto::FLOAT16);
  }
  b.graph().mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      pb::TensorProto::FLOAT16);
  std::vector<RefTensor> operands = OperandsOf(a);
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i == 3) continue;
    operands[i].type.dtype = ir::kF16;
    for (double& value : operands[i].values) value = op::RoundToType(value, ir::kF16);
  }
  const auto found = tests::EvaluateOnnx(b, operands, 1e-3);
  const Results expected = Expected(a, operands);
  EXPECT_EQ(found[0].type.dtype, ir::kF16);
  EXPECT_EQ(found[1].type.dtype, ir::kF32);
  ExpectNear(found[0], {a.batch, a.length, a.heads * a.value}, expected.y, 2e-3);
  ExpectNear(found[1], a.state(), expected.state, 1e-5);
}

TEST(OnnxLinearAttention, RefusesWhatItDoesNotTake) {
  EXPECT_EQ(Slug(ModelOf({.rule = "other"})), "graph.onnx.attribute");
  EXPECT_EQ(Slug(ModelOf({.rule = "linear", .heads = 3, .kv_heads = 2})), "graph.onnx.attribute");
  OnnxBuilder idle = ModelOf({.rule = "gated"});
  idle.graph().mutable_node(0)->mutable_attribute(0)->set_s("linear");  // has a decay
  EXPECT_EQ(Slug(idle), "graph.onnx.inputs");
  OnnxBuilder wide = ModelOf({.rule = "delta"});
  wide.graph()
      .mutable_input(4)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(2)
      ->set_dim_value(3);
  EXPECT_EQ(Slug(wide), "graph.onnx.shape");
}

// ------------------------------------------------------------ causal convolution

struct Causal {
  int64_t batch = 2, channels = 3, length = 5, window = 3;
  bool bias = true, past = true;
  std::string activation = "none";
};

OnnxBuilder ModelOf(const Causal& a) {
  OnnxBuilder b(27);
  b.Input("x", {a.batch, a.channels, a.length}).Input("w", {a.channels, 1, a.window});
  std::vector<std::string> inputs = {"x", "w", "", ""};
  if (a.bias) b.Input(inputs[2] = "bias", {a.channels});
  if (a.past) b.Input(inputs[3] = "past", {a.batch, a.channels, a.window - 1});
  b.Output("y", {a.batch, a.channels, a.length});
  b.Output("present", {a.batch, a.channels, a.window - 1});
  pb::NodeProto* node = b.Node("CausalConvWithState", inputs, "y");
  node->add_output("present");
  if (a.activation != "none") OnnxBuilder::AttrText(node, "activation", a.activation);
  return b;
}

void ExpectCausal(const Causal& a) {
  const int64_t kept = a.window - 1, rows = a.batch * a.channels;
  const auto x = Random(rows * a.length, 1, 1), w = Random(a.channels * a.window, 1, 2);
  const auto bias = Random(a.channels, 1, 3);
  const Numbers past =
      a.past ? Random(rows * kept, 1, 4) : Numbers(static_cast<size_t>(rows * kept), 0);
  std::vector<RefTensor> operands = {TensorOf({a.batch, a.channels, a.length}, x),
                                     TensorOf({a.channels, 1, a.window}, w)};
  if (a.bias) operands.push_back(TensorOf({a.channels}, bias));
  if (a.past) operands.push_back(TensorOf({a.batch, a.channels, kept}, past));
  Numbers y, present;
  for (int64_t row = 0; row < rows; ++row) {
    const auto at = [&](int64_t i) {  // of the state, then of x
      return i < kept ? past[static_cast<size_t>(row * kept + i)]
                      : x[static_cast<size_t>(row * a.length + i - kept)];
    };
    const int64_t channel = row % a.channels;
    for (int64_t i = 0; i < a.length; ++i) {
      double sum = a.bias ? bias[static_cast<size_t>(channel)] : 0;
      for (int64_t k = 0; k < a.window; ++k) {
        sum += at(i + k) * w[static_cast<size_t>(channel * a.window + k)];
      }
      y.push_back(a.activation == "none" ? sum : sum / (1 + std::exp(-sum)));
    }
    for (int64_t i = 0; i < kept; ++i) present.push_back(at(a.length + i));
  }
  const auto found = tests::EvaluateOnnx(ModelOf(a), operands, 1e-5);
  ExpectNear(found[0], {a.batch, a.channels, a.length}, y, 1e-5);
  ExpectNear(found[1], {a.batch, a.channels, kept}, present, 0);
}

TEST(OnnxCausalConv, SumsWindowsBehindItsState) {
  ExpectCausal({});
  ExpectCausal({.bias = false, .past = false, .activation = "silu"});
  ExpectCausal({.length = 1, .window = 4, .activation = "swish"});  // the state moves on by one
  ExpectCausal({.length = 2, .window = 5, .past = false});          // zeros stay in the state
}

// A window of one element keeps nothing.
TEST(OnnxCausalConv, AWindowOfOne) {
  OnnxBuilder b(27);
  b.Input("x", {1, 2, 2}).Weight("w", {2, 1, 1}).Output("y", {1, 2, 2}).Output("s", {1, 2, 0});
  b.Node("CausalConvWithState", {"x", "w"}, "y")->add_output("s");
  const auto found = tests::EvaluateOnnx(b, {TensorOf({1, 2, 2}, {1, 2, 3, 4})}, 0);
  const auto& w = b.graph().initializer(0).float_data();
  ExpectNear(found[0], {1, 2, 2}, {w[0], 2 * w[0], 3 * w[1], 4 * w[1]}, 1e-6);
  EXPECT_EQ(found[1].type.sizes(), (Shape{1, 2, 0}));
}

TEST(OnnxCausalConv, RefusesWhatItDoesNotTake) {
  EXPECT_EQ(Slug(ModelOf(Causal{.activation = "relu"})), "graph.onnx.attribute");
  OnnxBuilder b(27);
  b.Input("x", {1, 2, 4}).Weight("w", {2, 2, 3}).Output("y", {1, 2, 4});
  b.Node("CausalConvWithState", {"x", "w"}, "y");
  EXPECT_EQ(Slug(b), "graph.onnx.shape");
}

}  // namespace
}  // namespace tilewright::graph
