#include "tests/support/te_programs.h"

#include <cmath>

#include "compiler/ir/build.h"

namespace tilewright::tests {
namespace {

using ir::Axis;
using ir::Buffer;
using ir::Combiner;
using ir::Expr;
using ir::FunctionBuilder;
using ir::Int;
using ir::kF32;
using ir::kI32;
using ir::Load;
using ir::Var;

std::vector<Expr> Shape(std::initializer_list<int64_t> extents) {
  std::vector<Expr> shape;
  for (int64_t e : extents) shape.push_back(Int(e));
  return shape;
}

}  // namespace

ir::Function MatmulProgram(int64_t m, int64_t n, int64_t k) {
  FunctionBuilder b("matmul");
  Buffer x = b.Input("A", kF32, Shape({m, k})), w = b.Constant("B", kF32, Shape({k, n}));
  Axis axis = b.ReduceAxis("k", Int(k));
  Buffer y = b.Reduce("Y", kF32, Shape({m, n}), {"i", "j"}, {axis}, Combiner::kSum,
                      [&](const std::vector<Var>& v) {
                        return Load(x, {v[0], axis.var}) * Load(w, {axis.var, v[1]});
                      });
  return b.Finish({y});
}

ir::Function DenseReluProgram(int64_t m, int64_t n, int64_t k) {
  FunctionBuilder b("dense_relu");
  Buffer x = b.Input("A", kF32, Shape({m, k})), w = b.Constant("B", kF32, Shape({k, n}));
  Buffer bias = b.Constant("bias", kF32, Shape({n}));
  Axis axis = b.ReduceAxis("k", Int(k));
  Buffer y = b.Reduce("Y", kF32, Shape({m, n}), {"i", "j"}, {axis}, Combiner::kSum,
                      [&](const std::vector<Var>& v) {
                        return Load(x, {v[0], axis.var}) * Load(w, {axis.var, v[1]});
                      });
  Buffer z = b.Compute("Z", kF32, Shape({m, n}), {"i", "j"}, [&](const std::vector<Var>& v) {
    return ir::Max(Load(y, {v[0], v[1]}) + Load(bias, {v[1]}), ir::Float(0));
  });
  return b.Finish({z});
}

ir::Function ConvProgram(const ConvShape& s) {
  FunctionBuilder b("conv");
  Buffer x = b.Input("X", kF32, Shape({1, s.channels_in, s.height, s.width}));
  Buffer w = b.Constant("W", kF32, Shape({s.channels_out, s.channels_in, s.kernel, s.kernel}));
  Buffer bias = b.Constant("bias", kF32, Shape({s.channels_out}));
  int64_t h = s.height + 2 * s.pad, wd = s.width + 2 * s.pad;
  Buffer pad = b.Compute("pad", kF32, Shape({1, s.channels_in, h, wd}), {"n", "c", "h", "w"},
                         [&](const std::vector<Var>& v) {
                           Expr inside = v[2] >= Int(s.pad) && v[2] < Int(s.pad + s.height) &&
                                         v[3] >= Int(s.pad) && v[3] < Int(s.pad + s.width);
                           return ir::Select(
                               inside, Load(x, {v[0], v[1], v[2] - Int(s.pad), v[3] - Int(s.pad)}),
                               ir::Float(0));
                         });
  Axis ic = b.ReduceAxis("ic", Int(s.channels_in));
  Axis kh = b.ReduceAxis("kh", Int(s.kernel)), kw = b.ReduceAxis("kw", Int(s.kernel));
  int64_t oh = (h - s.kernel) / s.stride + 1, ow = (wd - s.kernel) / s.stride + 1;
  auto shape = Shape({1, s.channels_out, oh, ow});
  Buffer conv = b.Reduce("conv", kF32, shape, {"n", "oc", "oh", "ow"}, {ic, kh, kw}, Combiner::kSum,
                         [&](const std::vector<Var>& v) {
                           return Load(pad, {v[0], ic.var, v[2] * Int(s.stride) + kh.var,
                                             v[3] * Int(s.stride) + kw.var}) *
                                  Load(w, {v[1], ic.var, kh.var, kw.var});
                         });
  Buffer out =
      b.Compute("out", kF32, shape, {"n", "oc", "oh", "ow"}, [&](const std::vector<Var>& v) {
        return ir::Max(Load(conv, {v[0], v[1], v[2], v[3]}) + Load(bias, {v[1]}), ir::Float(0));
      });
  return b.Finish({out});
}

ir::Function StencilProgram(int64_t n) {
  FunctionBuilder b("stencil");
  Buffer x = b.Input("X", kI32, Shape({n + 4}));
  Buffer shifted = b.Compute("shifted", kI32, Shape({n + 4}), {"i"},
                             [&](const auto& v) { return Load(x, {v[0]}) + Int(1, kI32); });
  auto blur = [&](const Buffer& in) {
    return [in](const std::vector<Var>& v) {
      return Load(in, {v[0]}) + Load(in, {v[0] + Int(1)}) + Load(in, {v[0] + Int(2)});
    };
  };
  Buffer blur1 = b.Compute("blur1", kI32, Shape({n + 2}), {"i"}, blur(shifted));
  Buffer blur2 = b.Compute("blur2", kI32, Shape({n}), {"i"}, blur(blur1));
  return b.Finish({blur2});
}

ir::Function ComposedStencilProgram(int64_t n) {
  FunctionBuilder b("stencil");
  Buffer x = b.Input("X", kI32, Shape({n + 4}));
  Buffer blur2 = b.Compute("blur2", kI32, Shape({n}), {"i"}, [&](const std::vector<Var>& v) {
    Expr sum = Int(9, kI32);
    const int64_t weights[] = {1, 2, 3, 2, 1};
    for (int64_t d = 0; d < 5; ++d) sum = sum + Load(x, {v[0] + Int(d)}) * Int(weights[d], kI32);
    return sum;
  });
  return b.Finish({blur2});
}

ir::Function SoftmaxProgram(int64_t rows, int64_t columns) {
  FunctionBuilder b("softmax");
  Buffer x = b.Input("X", kF32, Shape({rows, columns}));
  Axis k = b.ReduceAxis("k", Int(columns)), m = b.ReduceAxis("m", Int(columns));
  Buffer top = b.Reduce("top", kF32, Shape({rows}), {"i"}, {k}, Combiner::kMax,
                        [&](const std::vector<Var>& v) { return Load(x, {v[0], k.var}); });
  Buffer e =
      b.Compute("e", kF32, Shape({rows, columns}), {"i", "j"}, [&](const std::vector<Var>& v) {
        return ir::Call(ir::Intrinsic::kExp, {Load(x, {v[0], v[1]}) - Load(top, {v[0]})});
      });
  Buffer total = b.Reduce("total", kF32, Shape({rows}), {"i"}, {m}, Combiner::kSum,
                          [&](const std::vector<Var>& v) { return Load(e, {v[0], m.var}); });
  Buffer out = b.Compute(
      "out", kF32, Shape({rows, columns}), {"i", "j"},
      [&](const std::vector<Var>& v) { return Load(e, {v[0], v[1]}) / Load(total, {v[0]}); });
  return b.Finish({out});
}

ir::Function MeanProgram(int64_t rows, int64_t columns) {
  FunctionBuilder b("mean");
  Buffer x = b.Input("X", kF32, Shape({rows, columns}));
  Axis k = b.ReduceAxis("k", Int(columns));
  Buffer sum = b.Reduce("sum", kF32, Shape({rows}), {"i"}, {k}, Combiner::kSum,
                        [&](const std::vector<Var>& v) { return Load(x, {v[0], k.var}); });
  auto shape = Shape({rows, columns});
  Buffer apart = b.Compute("apart", kF32, shape, {"i", "j"}, [&](const std::vector<Var>& v) {
    return Load(x, {v[0], v[1]}) - Load(sum, {v[0]}) * ir::Float(0.25);
  });
  Buffer out = b.Compute("out", kF32, shape, {"i", "j"}, [&](const std::vector<Var>& v) {
    return Load(apart, {v[0], v[1]}) * Load(apart, {v[0], v[1]});
  });
  return b.Finish({out});
}

ir::Function AddedRowsProgram(int64_t rows, int64_t columns) {
  FunctionBuilder b("added_rows");
  Buffer x = b.Input("X", kF32, Shape({rows, columns}));
  Axis k = b.ReduceAxis("k", Int(columns));
  auto shape = Shape({rows, columns});
  Buffer doubled = b.Compute("doubled", kF32, shape, {"i", "j"}, [&](const std::vector<Var>& v) {
    return Load(x, {v[0], v[1]}) * ir::Float(2);
  });
  Buffer sum = b.Reduce("sum", kF32, Shape({rows}), {"i"}, {k}, Combiner::kSum,
                        [&](const std::vector<Var>& v) { return Load(x, {v[0], k.var}); });
  Buffer out = b.Compute("out", kF32, shape, {"i", "j"}, [&](const std::vector<Var>& v) {
    return Load(doubled, {v[0], v[1]}) + Load(sum, {v[0]});
  });
  return b.Finish({out});
}

ir::Function QuantizedDenseProgram(int64_t m, int64_t n, int64_t k) {
  FunctionBuilder b("quantized_dense");
  Buffer x = b.Input("A", ir::kU8, Shape({m, k})), w = b.Constant("B", ir::kI8, Shape({k, n}));
  Axis axis = b.ReduceAxis("k", Int(k));
  Buffer acc = b.Reduce("acc", kI32, Shape({m, n}), {"i", "j"}, {axis}, Combiner::kSum,
                        [&](const std::vector<Var>& v) {
                          Expr left = ir::Cast(kI32, Load(x, {v[0], axis.var})) - Int(3, kI32);
                          return left * ir::Cast(kI32, Load(w, {axis.var, v[1]}));
                        });
  Buffer out = b.Compute("out", ir::kU8, Shape({m, n}), {"i", "j"}, [&](const std::vector<Var>& v) {
    Expr scaled = ir::Cast(kF32, Load(acc, {v[0], v[1]})) * ir::Float(0.375);
    return ir::Cast(ir::kU8, ir::Call(ir::Intrinsic::kRoundEven, {scaled + ir::Float(17)}));
  });
  return b.Finish({out});
}

ir::Function Bf16DenseProgram(int64_t m, int64_t n, int64_t k) {
  FunctionBuilder b("bf16_dense");
  Buffer x = b.Input("A", ir::kBF16, Shape({m, k})), w = b.Constant("B", ir::kBF16, Shape({k, n}));
  Axis axis = b.ReduceAxis("k", Int(k));
  Buffer acc = b.Reduce("acc", kF32, Shape({m, n}), {"i", "j"}, {axis}, Combiner::kSum,
                        [&](const std::vector<Var>& v) {
                          return ir::Cast(kF32, Load(x, {v[0], axis.var})) *
                                 ir::Cast(kF32, Load(w, {axis.var, v[1]}));
                        });
  Buffer out =
      b.Compute("out", ir::kBF16, Shape({m, n}), {"i", "j"},
                [&](const std::vector<Var>& v) { return ir::Cast(ir::kBF16, Load(acc, v)); });
  return b.Finish({out});
}

ir::Function MaxPoolProgram(int64_t channels, int64_t size, int64_t window, int64_t stride) {
  FunctionBuilder b("max_pool");
  Buffer x = b.Input("X", kF32, Shape({channels, size, size}));
  const int64_t wide = size + 2, out_size = (wide - window) / stride + 1;
  Buffer padded = b.Compute(
      "padded", kF32, Shape({channels, wide, wide}), {"c", "h", "w"},
      [&](const std::vector<Var>& v) {
        Expr inside = v[1] >= Int(1) && v[1] <= Int(size) && v[2] >= Int(1) && v[2] <= Int(size);
        return ir::Select(inside, Load(x, {v[0], v[1] - Int(1), v[2] - Int(1)}), ir::Float(-1000));
      });
  Axis kh = b.ReduceAxis("kh", Int(window)), kw = b.ReduceAxis("kw", Int(window));
  Buffer out = b.Reduce(
      "out", kF32, Shape({channels, out_size, out_size}), {"c", "h", "w"}, {kh, kw}, Combiner::kMax,
      [&](const std::vector<Var>& v) {
        return Load(padded, {v[0], v[1] * Int(stride) + kh.var, v[2] * Int(stride) + kw.var});
      });
  return b.Finish({out});
}

ir::Function SymbolicDenseProgram(int64_t n, int64_t k) {
  FunctionBuilder b("symbolic_dense");
  Var m = b.SizeParam("m");
  Buffer x = b.Input("A", kF32, {m, Int(k)}), w = b.Constant("B", kF32, Shape({k, n}));
  Axis axis = b.ReduceAxis("k", Int(k));
  Buffer y = b.Reduce("Y", kF32, {m, Int(n)}, {"i", "j"}, {axis}, Combiner::kSum,
                      [&](const std::vector<Var>& v) {
                        return Load(x, {v[0], axis.var}) * Load(w, {axis.var, v[1]});
                      });
  Buffer z = b.Compute("Z", kF32, {m, Int(n)}, {"i", "j"}, [&](const std::vector<Var>& v) {
    return ir::Max(Load(y, {v[0], v[1]}), ir::Float(0));
  });
  return b.Finish({z});
}

ir::Function SymbolicRowsProgram(int64_t columns) {
  FunctionBuilder b("symbolic_rows");
  Var n = b.SizeParam("n");
  Buffer x = b.Input("X", kF32, {n, Int(columns)});
  Buffer y = b.Compute("Y", kF32, {n, Int(columns)}, {"i", "j"}, [&](const std::vector<Var>& v) {
    return Load(x, {v[0], v[1]}) * ir::Float(2) + ir::Float(1);
  });
  return b.Finish({y});
}

ir::Function PackedInt8DenseProgram(int64_t rows, int64_t blocks, int64_t lanes, int64_t groups) {
  constexpr int64_t kZero = 7, kZeroOut = 3;
  FunctionBuilder b("quantized_dense");
  Buffer x = b.Input("X", ir::kU8, Shape({rows, 4 * groups}));
  Buffer w = b.Constant("W", ir::kI8, Shape({blocks, groups, lanes, 4}));
  Buffer scale = b.Constant("scale", kF32, Shape({blocks, lanes}));
  Axis ko = b.ReduceAxis("ko", Int(groups)), ki = b.ReduceAxis("ki", Int(4));
  Buffer acc = b.Reduce("acc", kI32, Shape({rows, blocks, lanes}), {"i", "jo", "ji"}, {ko, ki},
                        Combiner::kSum, [&](const std::vector<Var>& v) {
                          return ir::Cast(kI32, Load(x, {v[0], ko.var * Int(4) + ki.var})) *
                                 ir::Cast(kI32, Load(w, {v[1], ko.var, v[2], ki.var}));
                        });
  Axis so = b.ReduceAxis("so", Int(groups)), si = b.ReduceAxis("si", Int(4));
  Buffer sums = b.Reduce("wsum", kI32, Shape({blocks, lanes}), {"jo", "ji"}, {so, si},
                         Combiner::kSum, [&](const std::vector<Var>& v) {
                           return ir::Cast(kI32, Load(w, {v[0], so.var, v[1], si.var}));
                         });
  Buffer out = b.Compute(
      "out", ir::kU8, Shape({rows, blocks, lanes}), {"i", "jo", "ji"},
      [&](const std::vector<Var>& v) {
        Expr centred = Load(acc, {v[0], v[1], v[2]}) - Load(sums, {v[1], v[2]}) * Int(kZero, kI32);
        Expr real = ir::Cast(kF32, centred) * Load(scale, {v[1], v[2]});
        Expr level =
            ir::Cast(kI32, ir::Call(ir::Intrinsic::kRoundEven, {real})) + Int(kZeroOut, kI32);
        return ir::Cast(ir::kU8, ir::Min(ir::Max(level, Int(0, kI32)), Int(255, kI32)));
      });
  return b.Finish({out});
}

ir::Function PackedInt8ConvProgram(int64_t blocks, int64_t size, int64_t lanes) {
  constexpr int64_t kTaps = 3;
  FunctionBuilder b("quantized_conv");
  Buffer x = b.Input("X", ir::kU8, Shape({blocks, size, size, lanes}));
  Buffer w = b.Constant("W", ir::kI8, Shape({blocks, blocks, kTaps, kTaps, lanes / 4, lanes, 4}));
  Buffer scale = b.Constant("scale", kF32, Shape({blocks, lanes}));
  Buffer padded =
      b.Compute("padded", ir::kU8, Shape({blocks, size + 2, size + 2, lanes}), {"c", "h", "w", "l"},
                [&](const std::vector<Var>& v) {
                  Expr inside = v[1] >= Int(1) && v[1] < Int(size + 1) && v[2] >= Int(1) &&
                                v[2] < Int(size + 1);
                  return ir::Select(inside, Load(x, {v[0], v[1] - Int(1), v[2] - Int(1), v[3]}),
                                    Int(0, ir::kU8));
                });
  Axis ic = b.ReduceAxis("ic", Int(blocks)), kh = b.ReduceAxis("kh", Int(kTaps)),
       kw = b.ReduceAxis("kw", Int(kTaps)), io = b.ReduceAxis("io", Int(lanes / 4)),
       ii = b.ReduceAxis("ii", Int(4));
  const auto shape = Shape({blocks, size, size, lanes});
  const std::vector<std::string> dims = {"oc", "oh", "ow", "ol"};
  Buffer acc = b.Reduce(
      "acc", kI32, shape, dims, {ic, kh, kw, io, ii}, Combiner::kSum,
      [&](const std::vector<Var>& v) {
        return ir::Cast(kI32, Load(padded, {ic.var, v[1] + kh.var, v[2] + kw.var,
                                            io.var * Int(4) + ii.var})) *
               ir::Cast(kI32, Load(w, {v[0], ic.var, kh.var, kw.var, io.var, v[3], ii.var}));
      });
  Buffer out = b.Compute("out", ir::kU8, shape, dims, [&](const std::vector<Var>& v) {
    Expr real = ir::Cast(kF32, Load(acc, {v[0], v[1], v[2], v[3]})) * Load(scale, {v[0], v[3]});
    return ir::Cast(ir::kU8, ir::Call(ir::Intrinsic::kRoundEven, {real}));
  });
  return b.Finish({out});
}

ir::Function ArgMaxProgram(int64_t rows, int64_t columns) {
  FunctionBuilder b("argmax");
  Buffer x = b.Input("X", kF32, Shape({rows, columns}));
  Axis k = b.ReduceAxis("k", Int(columns));
  return b.Finish(b.ReduceTuple(
      {"best", "place"}, {kF32, ir::kI64}, Shape({rows}), {"i"}, {k}, ir::ArgMax(kF32, ir::kI64),
      [&](const std::vector<Var>& v) { return std::vector<Expr>{Load(x, {v[0], k.var}), k.var}; }));
}

ir::Function AttentionProgram(int64_t rows, int64_t keys, int64_t width, int64_t value_width) {
  FunctionBuilder b("attention");
  Buffer q = b.Input("Q", kF32, Shape({rows, width})), k = b.Input("K", kF32, Shape({keys, width}));
  Buffer v = b.Input("V", kF32, Shape({keys, value_width}));
  Axis inner = b.ReduceAxis("k", Int(width)), key = b.ReduceAxis("j", Int(keys));
  float scale = 1 / std::sqrt(static_cast<float>(width));
  Buffer scores =
      b.Reduce("scores", kF32, Shape({rows, keys}), {"i", "j"}, {inner}, Combiner::kSum,
               [&](const std::vector<Var>& i) {
                 return Load(q, {i[0], inner.var}) * ir::Float(scale) * Load(k, {i[1], inner.var});
               });
  auto state =
      b.ReduceTuple({"top", "total", "sum"}, {kF32, kF32, kF32}, Shape({rows, value_width}),
                    {"i", "d"}, {key}, ir::OnlineAttention(kF32), [&](const std::vector<Var>& i) {
                      return std::vector<Expr>{Load(scores, {i[0], key.var}), ir::Float(1),
                                               Load(v, {key.var, i[1]})};
                    });
  Buffer out = b.Compute("out", kF32, Shape({rows, value_width}), {"i", "d"},
                         [&](const std::vector<Var>& i) {
                           return Load(state[2], {i[0], i[1]}) / Load(state[1], {i[0], i[1]});
                         });
  return b.Finish({out});
}

ir::Function LstmProgram(int64_t steps, int64_t batch, int64_t units) {
  FunctionBuilder b("lstm");
  // X·W comes from outside: it does not depend on time.
  Buffer x = b.Input("X", kF32, Shape({steps, batch, 4, units}));
  Buffer r = b.Constant("R", kF32, Shape({units, 4, units}));
  auto zero = [](const std::vector<Var>&) { return ir::Float(0); };
  Buffer h = b.State("h", kF32, Int(steps), Shape({batch, units}), {"b", "u"}, zero);
  Buffer c = b.State("c", kF32, Int(steps), Shape({batch, units}), {"b", "u"}, zero);
  Axis k = b.ReduceAxis("k", Int(units));
  b.BeginScan("t", Int(steps));
  Buffer gates = b.Reduce("gates", kF32, Shape({batch, 4, units}), {"b", "g", "u"}, {k},
                          Combiner::kSum, [&](const std::vector<Var>& i) {
                            return Load(h, {i[0], i[1], k.var}) * Load(r, {k.var, i[2], i[3]});
                          });
  auto gate = [&](const std::vector<Var>& i, int64_t g) {
    return Load(x, {i[0], i[1], Int(g), i[2]}) + Load(gates, {i[0], i[1], Int(g), i[2]});
  };
  auto tanh = [](Expr e) { return ir::Call(ir::Intrinsic::kTanh, {std::move(e)}); };
  auto sigmoid = [&](Expr e) {
    return tanh(std::move(e) * ir::Float(0.5)) * ir::Float(0.5) + ir::Float(0.5);
  };
  b.Next(c, {"b", "u"}, [&](const std::vector<Var>& i) {
    return sigmoid(gate(i, 2)) * Load(c, {i[0], i[1], i[2]}) +
           sigmoid(gate(i, 0)) * tanh(gate(i, 3));
  });
  b.Next(h, {"b", "u"}, [&](const std::vector<Var>& i) {
    return sigmoid(gate(i, 1)) * tanh(Load(c, {i[0] + Int(1), i[1], i[2]}));
  });
  b.EndScan();
  return b.Finish({h});
}

}  // namespace tilewright::tests
