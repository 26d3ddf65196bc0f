// Compiled code against the interpreter, for hand-written schedules of the kernels that matter
// first.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "compiler/ir/build.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/type_rules.h"
#include "compiler/schedule/schedule.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/run_compiled.h"

namespace tilewright {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Int;
using ir::Var;

std::vector<Expr> Shape(std::vector<int64_t> dims) {
  std::vector<Expr> shape;
  for (int64_t d : dims) shape.push_back(Int(d));
  return shape;
}

// ------------------------------------------------------------------------------------------------
// kernels

ir::Function Matmul(int64_t m, int64_t n, int64_t k, ir::DType type = ir::kF32) {
  ir::FunctionBuilder b("matmul");
  Buffer x = b.Input("A", type, Shape({m, k}));
  Buffer w = b.Constant("B", type, Shape({k, n}));
  ir::Axis r = b.ReduceAxis("k", Int(k));
  Buffer c = b.Reduce("C", type, Shape({m, n}), {"i", "j"}, {r}, ir::Combiner::kSum,
                      [&](const std::vector<Var>& v) {
                        return ir::Load(x, {v[0], r.var}) * ir::Load(w, {r.var, v[1]});
                      });
  return b.Finish({c});
}

// Convolution without padding, then bias and relu; weights are [ic, kh, kw, oc].
ir::Function ConvBiasRelu(int64_t ic, int64_t size, int64_t oc, int64_t kernel, int64_t stride) {
  ir::FunctionBuilder b("conv");
  int64_t out = (size - kernel) / stride + 1;
  Buffer x = b.Input("X", ir::kF32, Shape({ic, size, size}));
  Buffer w = b.Constant("W", ir::kF32, Shape({ic, kernel, kernel, oc}));
  Buffer bias = b.Constant("bias", ir::kF32, Shape({oc}));
  ir::Axis rc = b.ReduceAxis("ic", Int(ic)), rh = b.ReduceAxis("kh", Int(kernel)),
           rw = b.ReduceAxis("kw", Int(kernel));
  Buffer conv =
      b.Reduce("conv", ir::kF32, Shape({oc, out, out}), {"oc", "oh", "ow"}, {rc, rh, rw},
               ir::Combiner::kSum, [&](const std::vector<Var>& v) {
                 Expr h = v[1] * Int(stride) + rh.var, c = v[2] * Int(stride) + rw.var;
                 return ir::Load(x, {rc.var, h, c}) * ir::Load(w, {rc.var, rh.var, rw.var, v[0]});
               });
  Buffer y = b.Compute("Y", ir::kF32, Shape({oc, out, out}), {"oc", "oh", "ow"},
                       [&](const std::vector<Var>& v) {
                         Expr sum = ir::Load(conv, {v[0], v[1], v[2]}) + ir::Load(bias, {v[0]});
                         return ir::Max(sum, ir::Float(0));
                       });
  return b.Finish({y});
}

ir::Function Elementwise(int64_t rows, int64_t columns) {
  ir::FunctionBuilder b("elementwise");
  Buffer x = b.Input("X", ir::kF32, Shape({rows, columns}));
  Buffer s = b.Constant("S", ir::kF32, Shape({columns}));
  Buffer y =
      b.Compute("Y", ir::kF32, Shape({rows, columns}), {"i", "j"}, [&](const std::vector<Var>& v) {
        Expr e = ir::Load(x, {v[0], v[1]}) * ir::Load(s, {v[1]});
        return ir::Call(ir::Intrinsic::kTanh, {e}) + ir::Float(0.5);
      });
  return b.Finish({y});
}

// Maximum over each row, of ints or floats.
ir::Function RowMax(int64_t rows, int64_t columns, ir::DType type) {
  ir::FunctionBuilder b("rowmax");
  Buffer x = b.Input("X", type, Shape({rows, columns}));
  ir::Axis r = b.ReduceAxis("j", Int(columns));
  Buffer y = b.Reduce("Y", type, Shape({rows}), {"i"}, {r}, ir::Combiner::kMax,
                      [&](const std::vector<Var>& v) { return ir::Load(x, {v[0], r.var}); });
  return b.Finish({y});
}

// A stencil over a zero border: a select guards the loads.
ir::Function PaddedBlur(int64_t size) {
  ir::FunctionBuilder b("blur");
  Buffer x = b.Input("X", ir::kF32, Shape({size}));
  ir::Axis r = b.ReduceAxis("k", Int(3));
  Buffer y = b.Reduce("Y", ir::kF32, Shape({size}), {"i"}, {r}, ir::Combiner::kSum,
                      [&](const std::vector<Var>& v) {
                        Expr at = v[0] + r.var - Int(1);
                        Expr inside = (at >= Int(0)) && (at < Int(size));
                        return ir::Select(inside, ir::Load(x, {at}), ir::Float(0));
                      });
  return b.Finish({y});
}

// ------------------------------------------------------------------------------------------------
// running

void FillRandom(const Buffer& buffer, int64_t elements, support::Rng& rng, ir::TensorData* data) {
  data->bytes.resize(elements * buffer->dtype.bytes());
  for (int64_t i = 0; i < elements; ++i) {
    if (buffer->dtype == ir::kF32) {
      float v = static_cast<float>(rng.UniformDouble() * 2 - 1);
      memcpy(&data->bytes[i * 4], &v, 4);
    } else if (buffer->dtype == ir::kI32) {
      int32_t v = static_cast<int32_t>(rng.NextU64() % 2001) - 1000;
      memcpy(&data->bytes[i * 4], &v, 4);
    } else {
      data->bytes[i] = static_cast<uint8_t>(rng.NextU64());
    }
  }
}

struct Difference {
  double max_abs = 0, norm = 0;
};

double ValueAt(const Buffer& buffer, const ir::TensorData& data, int64_t i) {
  if (buffer->dtype == ir::kI32) {
    int32_t v;
    memcpy(&v, &data.bytes[i * 4], 4);
    return v;
  }
  float v;
  memcpy(&v, &data.bytes[i * 4], 4);
  return v;
}

Difference Compare(const Buffer& buffer, const ir::TensorData& a, const ir::TensorData& e) {
  Difference d;
  double scale = 0;
  for (size_t i = 0; i < e.bytes.size() / 4; ++i) {
    const double expected = ValueAt(buffer, e, i), actual = ValueAt(buffer, a, i);
    if (std::isnan(expected) && std::isnan(actual)) continue;
    double diff = std::abs(actual - expected);
    scale = std::max(scale, std::abs(expected));
    if (!(diff <= 1e30)) diff = 1e30;
    d.max_abs = std::max(d.max_abs, diff);
  }
  d.norm = d.max_abs / std::max(scale, 1e-30);
  return d;
}

struct Case {
  ir::Function function;
  std::vector<ir::TensorData> inputs;
  ir::TensorData expected;
};

Case MakeCase(const ir::Function& f) {
  Case c{f, {}, {}};
  support::Rng rng(7);
  std::vector<ir::TensorData*> args;
  c.inputs.resize(f.params.size());
  for (size_t i = 0; i < f.params.size(); ++i) {
    int64_t elements = *ir::BufferElements(f, f.params[i], {});
    FillRandom(f.params[i], elements, rng, &c.inputs[i]);
    args.push_back(&c.inputs[i]);
  }
  absl::Status status = ir::Interpret(f, {}, args);
  EXPECT_TRUE(status.ok()) << support::StatusText(status);
  c.expected = c.inputs.back();
  return c;
}

// The scheduled function gives what the naive one gives: interpreted, lowered and interpreted, and
// compiled for every vector width with one and two threads.
void CheckSchedule(const Case& c, const std::string& steps, double tolerance = 1e-5) {
  SCOPED_TRACE(steps);
  absl::StatusOr<ir::Function> scheduled = schedule::Replay(c.function, steps);
  ASSERT_TRUE(scheduled.ok()) << support::StatusText(scheduled.status());
  const Buffer& out = c.function.params.back();
  auto check = [&](const char* what, const absl::Status& status, const ir::TensorData& actual) {
    ASSERT_TRUE(status.ok()) << what << ": " << support::StatusText(status);
    Difference d = Compare(out, actual, c.expected);
    EXPECT_LE(d.norm, tolerance) << what;
  };
  for (const target::Target& target : tests::RunnableTargets()) {
    absl::StatusOr<ir::Function> flat = tests::LowerChecked(*scheduled, target);
    ASSERT_TRUE(flat.ok()) << support::StatusText(flat.status());
    std::vector<ir::TensorData> data = c.inputs;
    std::vector<ir::TensorData*> args;
    for (ir::TensorData& d : data) args.push_back(&d);
    check("lowered", ir::Interpret(*flat, {}, args), data.back());
    for (int threads : {1, 2}) {
      data = c.inputs;
      check(target.cpu.c_str(), tests::RunCompiled(*scheduled, target, threads, {}, args),
            data.back());
    }
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << ir::Print(*flat);
      return;
    }
  }
}

// Writes a schedule with names instead of numbers: `%name` is block `name`, `%name.2` its loop 2,
// `$0` the first result of the step before. Returns canonical steps.
class Script {
 public:
  explicit Script(const ir::Function& f) : schedule_(f) {}

  Script& Do(const std::string& line) {
    std::string text = Resolve(line);
    absl::StatusOr<schedule::Step> step = schedule::ParseStep(text);
    absl::Status status = step.ok() ? schedule_.Apply(*step) : step.status();
    EXPECT_TRUE(status.ok()) << line << " (" << text << "): " << support::StatusText(status);
    return *this;
  }
  std::string Text() const { return schedule::ToText(schedule_.steps()); }
  std::string Describe() const { return schedule_.Describe(); }

 private:
  std::string Resolve(const std::string& line) const {
    std::string out;
    for (size_t i = 0; i < line.size();) {
      if (line[i] != '%' && line[i] != '$') {
        out += line[i++];
        continue;
      }
      bool result = line[i] == '$';
      size_t end = line.find_first_of(" ;", i);
      std::string name = line.substr(i + 1, end == std::string::npos ? end : end - i - 1);
      int handle = -1;
      if (result) {
        handle = schedule_.LastResults()[std::stoi(name)];
      } else {
        size_t dot = name.find('.');
        int block = schedule_.BlockHandle(name.substr(0, dot));
        handle = dot == std::string::npos
                     ? block
                     : schedule_.LoopsOf(block)[std::stoi(name.substr(dot + 1))];
      }
      out += "%" + std::to_string(handle);
      i = end == std::string::npos ? line.size() : end;
    }
    return out;
  }

  schedule::Schedule schedule_;
};

// ------------------------------------------------------------------------------------------------
// tests

TEST(Codegen, NaiveKernels) {
  for (const ir::Function& f :
       {Matmul(7, 9, 5), Matmul(4, 4, 4, ir::kI32), ConvBiasRelu(3, 11, 5, 3, 2),
        Elementwise(3, 13), RowMax(5, 17, ir::kF32), RowMax(3, 6, ir::kI32), PaddedBlur(19)}) {
    CheckSchedule(MakeCase(f), "");
  }
}

TEST(Codegen, VectorisedElementwiseWithTails) {
  for (int64_t columns : {8, 13, 31, 64}) {
    for (const char* tail : {"mask", "peel"}) {
      for (int lanes : {4, 8, 16}) {
        ir::Function f = Elementwise(3, columns);
        Script s(f);
        s.Do("split %Y.1 [?," + std::to_string(lanes) + "] tail=" + tail);
        s.Do("vectorize %Y.2").Do("parallel %Y.0");
        CheckSchedule(MakeCase(f), s.Text());
      }
    }
  }
}

// Every second to fifth element, the last of which ends the buffer: lanes behind it read nothing.
TEST(Codegen, StridedVectorsWithTails) {
  for (int64_t stride : {2, 3, 4, 5}) {
    for (int64_t size : {5, 13, 16, 21, 47}) {
      ir::FunctionBuilder b("strided");
      const Buffer x = b.Input("X", ir::kF32, {Int((size - 1) * stride + 1)});
      const Buffer y = b.Compute("Y", ir::kF32, {Int(size)}, {"i"}, [&](const auto& v) {
        return ir::Load(x, {v[0] * Int(stride)}) + ir::Float(1);
      });
      const Case c = MakeCase(b.Finish({y}));
      for (const char* split : {"split %Y.0 [?,16]", "split %Y.0 [?,16] tail=peel"}) {
        CheckSchedule(c, Script(c.function).Do(split).Do("vectorize $1").Text());
      }
    }
  }
}

// Two columns side by side, whose last vector a mask ends: they are stored as pairs.
TEST(Codegen, InterleavedColumnsWithTails) {
  for (int64_t size : {5, 13, 16, 21, 47}) {
    for (const ir::DType type : {ir::kF32, ir::kI32}) {
      ir::FunctionBuilder b("columns");
      const Buffer x = b.Input("X", type, {Int(2), Int(size)});
      const Buffer y = b.Compute("Y", type, {Int(size), Int(2)}, {"i", "k"}, [&](const auto& v) {
        return ir::Load(x, {v[1], v[0]}) + ir::Load(x, {Int(0), v[0]});
      });
      const Case c = MakeCase(b.Finish({y}));
      for (const char* split : {"split %Y.0 [?,16]", "split %Y.0 [?,16] tail=peel"}) {
        Script script(c.function);
        script.Do(split).Do("reorder %Y.0 %Y.2 %Y.1").Do("vectorize %Y.2").Do("unroll %Y.1");
        CheckSchedule(c, script.Text());
      }
    }
  }
}

TEST(Codegen, VectorsOverAFusedLoop) {
  ir::Function f = Elementwise(6, 20);
  Script s(f);
  s.Do("fuse %Y.0 %Y.1").Do("split %Y.0 [?,8]").Do("vectorize %Y.1").Do("parallel %Y.0");
  CheckSchedule(MakeCase(f), s.Text());
}

std::string TiledMatmul(const ir::Function& f, int mr, int nr, int lanes, const char* tail,
                        const char* order) {
  Script s(f);
  s.Do("cache_write %C");
  s.Do("split %C_copy.0 [?," + std::to_string(mr) + "] tail=" + tail);
  s.Do("split %C_copy.2 [?," + std::to_string(nr) + "] tail=" + tail);
  s.Do("reorder %C_copy.0 %C_copy.2 %C_copy.1 %C_copy.3");
  s.Do("compute_at %C %C_copy.1");
  s.Do("split %C.3 [?," + std::to_string(lanes) + "]");
  // C: i_o j_o | i j_0 j_1 k
  if (std::string(order) == "outer") {
    s.Do("reorder %C.5 %C.2 %C.3 %C.4");
    s.Do("unroll %C.3").Do("unroll %C.4").Do("vectorize %C.5");
  } else {
    s.Do("unroll %C.2").Do("unroll %C.3").Do("vectorize %C.4");
  }
  s.Do("split %C_copy.3 [?," + std::to_string(lanes) + "]");
  s.Do("vectorize %C_copy.4").Do("unroll %C_copy.3").Do("unroll %C_copy.2");
  s.Do("parallel %C_copy.0");
  return s.Text();
}

TEST(Codegen, RegisterTiledMatmul) {
  for (auto [m, n, k] : {std::tuple{12, 32, 9}, std::tuple{13, 37, 8}, std::tuple{5, 7, 3}}) {
    ir::Function f = Matmul(m, n, k);
    Case c = MakeCase(f);
    for (const char* tail : {"mask", "peel"}) {
      for (const char* order : {"outer", "inner"}) {
        CheckSchedule(c, TiledMatmul(f, 6, 16, 8, tail, order));
        CheckSchedule(c, TiledMatmul(f, 4, 16, 16, tail, order));
      }
    }
  }
}

// DQN's convolutions at their real reduction sizes, tiled over columns and channels; the output is
// NCHW, so that vectors over channels are stored lane by lane.
std::string TiledConv(const ir::Function& f, int tile_w, int tile_c, int lanes, const char* tail,
                      bool decompose) {
  Script s(f);
  s.Do("set_scope %conv local");
  s.Do("split %Y.0 [?," + std::to_string(tile_c) + "]");
  s.Do("split %Y.3 [?," + std::to_string(tile_w) + "] tail=" + tail);
  s.Do("reorder %Y.0 %Y.2 %Y.3 %Y.4 %Y.1");
  s.Do("compute_at %conv %Y.2");
  s.Do("split %conv.3 [?," + std::to_string(lanes) + "]");
  s.Do("reorder %conv.7 %conv.8 %conv.9 %conv.5 %conv.6 %conv.3 %conv.4");
  s.Do("unroll %conv.7").Do("unroll %conv.8").Do("vectorize %conv.9");
  if (decompose) s.Do("decompose_reduction %conv %conv.3");
  s.Do("split %Y.4 [?," + std::to_string(lanes) + "]");
  s.Do("vectorize %Y.5").Do("unroll %Y.4").Do("unroll %Y.3");
  s.Do("fuse %Y.0 %Y.1").Do("parallel %Y.0");
  return s.Text();
}

TEST(Codegen, TiledConvolutionsWithBiasAndRelu) {
  struct Shape4 {
    int64_t ic, size, oc, kernel, stride;
  };
  for (const Shape4& c : {Shape4{4, 20, 32, 8, 4}, Shape4{8, 14, 16, 4, 2}, Shape4{6, 9, 32, 3, 1},
                          Shape4{3, 9, 24, 3, 2}}) {
    ir::Function f = ConvBiasRelu(c.ic, c.size, c.oc, c.kernel, c.stride);
    Case kase = MakeCase(f);
    for (const char* tail : {"mask", "peel"}) {
      CheckSchedule(kase, TiledConv(f, 3, 16, 8, tail, true));
    }
    CheckSchedule(kase, TiledConv(f, 4, 8, 4, "peel", false));
    CheckSchedule(kase, TiledConv(f, 2, 16, 16, "peel", true));
  }
}

TEST(Codegen, ReductionsIntoSplitAccumulators) {
  for (ir::DType type : {ir::kF32, ir::kI32}) {
    ir::Function f = RowMax(21, 37, type);
    Script s(f);
    s.Do("split %Y.0 [?,8] tail=peel").Do("reorder %Y.0 %Y.2 %Y.1").Do("vectorize %Y.2");
    CheckSchedule(MakeCase(f), s.Text());
    Script k(f);
    k.Do("split %Y.1 [?,4]").Do("unroll %Y.2").Do("parallel %Y.0");
    CheckSchedule(MakeCase(f), k.Text());
  }
}

TEST(Codegen, PaddingUnderVectors) {
  for (int64_t size : {8, 19, 33}) {
    ir::Function f = PaddedBlur(size);
    for (const char* tail : {"mask", "peel"}) {
      Script s(f);
      s.Do(std::string("split %Y.0 [?,8] tail=") + tail).Do("reorder %Y.0 %Y.2 %Y.1");
      s.Do("unroll %Y.1").Do("vectorize %Y.2");
      CheckSchedule(MakeCase(f), s.Text());
    }
  }
}

// Rows of Winograd's transforms under vectors of rows: what lies outside is not read, not before
// the first element nor behind the last one. No loop's ends decide which tile is at a border.
TEST(Codegen, RowsOfPaddedTilesUnderVectors) {
  constexpr int64_t kTiles = 4, kStep = 4;
  for (const int64_t channels : {1, 256}) {
    const int64_t size = channels * kTiles * kStep;
    ir::FunctionBuilder b("rows");
    const Buffer x = b.Input("X", ir::kF32, Shape({size}));
    const auto value = [&](const std::vector<Var>& v) {
      const Expr tile = ir::FloorMod(v[1], Int(kTiles));
      const auto tap = [&](int64_t d) {
        const Expr at = tile * Int(kStep) + Int(d);
        const Expr inside = at >= Int(0) && at < Int(kTiles * kStep);
        const Expr row = ir::FloorDiv(v[1], Int(kTiles)) * Int(kTiles * kStep);
        return ir::Select(inside, ir::Load(x, {row + at}), ir::Float(0));
      };
      return ir::Select(ir::Eq(v[0], Int(0)), tap(-1) - tap(0),
                        ir::Select(ir::Eq(v[0], Int(1)), tap(0) + tap(kStep), tap(-1) * tap(1)));
    };
    const Buffer y = b.Compute("Y", ir::kF32, Shape({3, channels * kTiles}), {"r", "i"}, value);
    const ir::Function f = b.Finish({y});
    Script s(f);
    s.Do("split %Y.0 [?,4] tail=mask").Do("reorder %Y.0 %Y.2 %Y.1").Do("vectorize %Y.2");
    CheckSchedule(MakeCase(f), s.Text());
  }
}

// What an iteration stores decides a choice in it: no loop is cut by that.
TEST(Codegen, ChoicesByWhatAnIterationStores) {
  ir::FunctionBuilder b("choice");
  const Buffer x = b.Input("X", ir::kI32, Shape({40}));
  const Buffer twice = b.Compute("T", ir::kI32, Shape({40}), {"i"}, [&](const auto& v) {
    return ir::Load(x, {v[0]}) * Int(2, ir::kI32);
  });
  const Buffer y = b.Compute("Y", ir::kI32, Shape({40}), {"i"}, [&](const auto& v) {
    const Expr at = ir::Load(twice, {v[0]});
    return ir::Select(at < Int(5, ir::kI32), at + Int(1, ir::kI32), Int(7, ir::kI32));
  });
  const ir::Function f = b.Finish({twice, y});
  CheckSchedule(MakeCase(f), Script(f).Do("reverse_compute_at %Y %T.0").Text());
}

// Vectors that are no power of two of lanes, of which constants say what is read and written: LLVM
// stopped at some of them.
TEST(Codegen, OddVectorsUnderConstantMasks) {
  for (const int64_t lanes : {3, 5, 9, 12, 15, 17, 31}) {
    for (const int64_t missing : {1, 2}) {
      ir::FunctionBuilder b("padded");
      const Buffer x = b.Constant("X", ir::kF32, Shape({lanes - missing}));
      const Buffer y = b.Compute("Y", ir::kF32, Shape({lanes}), {"i"}, [&](const auto& v) {
        return ir::Select(v[0] < Int(lanes - missing), ir::Load(x, {v[0]}), ir::Float(0));
      });
      const ir::Function f = b.Finish({y});
      CheckSchedule(MakeCase(f), Script(f).Do("vectorize %Y.0").Text());
      Script written(f);
      written.Do("split %Y.0 [?," + std::to_string(lanes + missing) + "] tail=mask");
      CheckSchedule(MakeCase(f), written.Do("vectorize %Y.1").Text());
    }
  }
}

// The text of a flat function gives what it gives interpreted, on all targets of this machine.
void CheckText(const std::string& text) {
  const auto f = ir::ParseFunction(text);
  ASSERT_TRUE(f.ok()) << support::StatusText(f.status());
  std::vector<ir::TensorData> in(f->params.size() - 1);
  ir::TensorData expected;
  std::vector<ir::TensorData*> args;
  for (size_t p = 0; p < in.size(); ++p) {
    const int64_t bytes = *ir::AsInt(f->params[p]->shape[0]) * f->params[p]->dtype.bytes();
    for (int64_t i = 0; i < bytes; ++i) in[p].bytes.push_back(static_cast<uint8_t>(i * 37));
    args.push_back(&in[p]);
  }
  args.push_back(&expected);
  ASSERT_TRUE(ir::Interpret(*f, {}, args).ok());
  for (const target::Target& target : tests::RunnableTargets()) {
    ir::TensorData out;
    args.back() = &out;
    const absl::Status ran = tests::RunCompiled(*f, target, 1, {}, args);
    ASSERT_TRUE(ran.ok()) << support::StatusText(ran) << "\n" << text;
    EXPECT_EQ(out.bytes, expected.bytes) << target.ToString() << "\n" << text;
  }
}

// Of masks that no lane passes. Where LLVM found that only when it selected instructions, with AVX2
// loads of twelve lanes brought what is there. Row 0 would begin outside. Rows are written out, or
// a loop's.
TEST(Codegen, OddVectorsUnderMasksThatCancelOut) {
  using support::StrCat;
  for (const int lanes : {3, 5, 6, 12, 24}) {
    const auto ramp = [&](const std::string& base) {
      return StrCat("ramp(", base, ", 1, ", lanes, ")");
    };
    const auto row = [&](const std::string& i) {
      const std::string passed = StrCat("broadcast(", i, ", ", lanes, ") < ", ramp("0"));
      return StrCat("Y[", ramp(StrCat(i, " * ", lanes)), "] = X[", ramp(i + " * 144 + 1"), "] - X[",
                    ramp(i + " * 144 - 1"), "] masked(!(", passed, ") && ", passed, ");\n");
    };
    for (const std::string& rows : {row("0") + row("1"), "for i in 0..2 {\n" + row("i") + "}\n"}) {
      CheckText(StrCat("fn odd(X: i32[288] input, Y: i32[", 2 * lanes, "] output) stage=flat {\n",
                       rows, "}\n"));
    }
  }
}

// Every kind of access under every kind of mask, of lanes that are no power of two.
TEST(Codegen, OddVectorsUnderMasks) {
  using support::StrCat;
  for (const int lanes : {3, 6, 12, 20}) {
    const std::string own = StrCat("ramp(0, 1, ", lanes, ")");
    const auto all = [&](const std::string& of) {
      return StrCat("broadcast(", of, ", ", lanes, ")");
    };
    const auto ramp = [&](const std::string& base, int stride) {
      return StrCat("ramp(", base, ", ", stride, ", ", lanes, ")");
    };
    const std::string below = StrCat(own, " < ", all("i * 2")),
                      data = StrCat("X[", ramp("i", 1), "] < ",
                                    StrCat("ramp(0i32, 5i32, ", lanes, ")"));
    const std::vector<std::string> masks = {below,
                                            StrCat(own, " < ", all("2")),
                                            StrCat("!(", below, ")"),
                                            StrCat(all("i"), " < ", own, " && ", below),
                                            data,
                                            StrCat(data, " || ", below)};
    for (const std::string& mask : masks) {
      const auto copy = [&](const std::string& at, const std::string& from) {
        return StrCat("Y[", at, "] masked(", mask, ") = X[", from, "] masked(", mask, ");\n");
      };
      CheckText(StrCat("fn odd(X: i32[640] input, Y: i32[512] output) stage=flat {\n",
                       "for i in 0..512 {\nY[i] = 7i32;\n}\nfor i in 0..4 {\n",
                       copy(ramp("i", 1), ramp("i + 1", 1)), copy(ramp("i + 128", 1), ramp("i", 2)),
                       copy(ramp("i + 256", 3), StrCat(own, " * ", own)),
                       copy(ramp("2 * i + 384", 2), ramp("i", 1)),
                       copy(ramp("2 * i + 385", 2), ramp("i + 7", 1)), "}\n}\n"));
    }
  }
}

// A dense layer whose reduction is longer than its output: small rows, unrolled by annotation.
TEST(Codegen, DenseWithUnrollHint) {
  ir::Function f = Matmul(1, 24, 50);
  Script s(f);
  s.Do("cache_write %C").Do("split %C_copy.1 [?,8]").Do("compute_at %C %C_copy.1");
  s.Do("vectorize %C.3").Do("vectorize %C_copy.2");
  CheckSchedule(MakeCase(f), s.Text());
  Script k(f);
  k.Do("split %C.2 [?,5]").Do("annotate %C.2 unroll_max=16");
  CheckSchedule(MakeCase(f), k.Text());
}

// Found by the long lane: overlapping tiles repeat a reduction, and fused with its loop they pass
// its first point twice.
TEST(Codegen, AReductionRepeatedInsideAFusedLoopStartsAgain) {
  ir::Function f = Matmul(13, 1, 13);
  Script s(f);
  s.Do("split %C.1 [2,1,?] tail=overlap").Do("fuse %C.1 %C.2 %C.3").Do("fuse %C.1 %C.2");
  CheckSchedule(MakeCase(f), s.Text());
}

TEST(Codegen, MathFunctions) {
  for (ir::Intrinsic op : {ir::Intrinsic::kExp,       ir::Intrinsic::kTanh,  ir::Intrinsic::kErf,
                           ir::Intrinsic::kSqrt,      ir::Intrinsic::kFloor, ir::Intrinsic::kCeil,
                           ir::Intrinsic::kRoundEven, ir::Intrinsic::kAbs,   ir::Intrinsic::kLog,
                           ir::Intrinsic::kSin,       ir::Intrinsic::kCos,   ir::Intrinsic::kTan,
                           ir::Intrinsic::kAsin,      ir::Intrinsic::kAcos,  ir::Intrinsic::kAtan,
                           ir::Intrinsic::kSinh,      ir::Intrinsic::kCosh,  ir::Intrinsic::kAsinh,
                           ir::Intrinsic::kAcosh,     ir::Intrinsic::kAtanh}) {
    ir::FunctionBuilder b("math");
    Buffer x = b.Input("X", ir::kF32, Shape({29}));
    Buffer y = b.Compute("Y", ir::kF32, Shape({29}), {"i"}, [&](const std::vector<Var>& v) {
      Expr e = ir::Load(x, {v[0]});
      bool positive = op == ir::Intrinsic::kSqrt || op == ir::Intrinsic::kLog;
      if (positive) e = e * e + ir::Float(0.125);
      return ir::Call(op, {e * ir::Float(3)});
    });
    ir::Function f = b.Finish({y});
    Script s(f);
    s.Do("split %Y.0 [?,8]").Do("vectorize %Y.1");
    CheckSchedule(MakeCase(f), s.Text());
  }
}

// Shifts by the width and more give 0; the other operations on bits.
TEST(Codegen, BitsOfIntegers) {
  for (const ir::DType type : {ir::kU8, ir::kU16, ir::kU32, ir::kU64, ir::kI32}) {
    for (ir::Intrinsic op : {ir::Intrinsic::kBitAnd, ir::Intrinsic::kBitOr, ir::Intrinsic::kBitXor,
                             ir::Intrinsic::kShiftLeft, ir::Intrinsic::kShiftRight}) {
      ir::FunctionBuilder b("bits");
      Buffer x = b.Input("X", type, Shape({29})), n = b.Input("N", ir::kU8, Shape({29}));
      Buffer y = b.Compute("Y", type, Shape({29}), {"i"}, [&](const std::vector<Var>& v) {
        const Expr count = ir::Cast(type, ir::Load(n, {v[0]}));
        return ir::Call(op, {ir::Load(x, {v[0]}), count});
      });
      ir::Function f = b.Finish({y});
      Script s(f);
      s.Do("split %Y.0 [?,8]").Do("vectorize %Y.1");
      CheckSchedule(MakeCase(f), s.Text());
    }
  }
}

// Halves go up, nothing wraps on the way, and counts of the width and more give 0. Counts that a
// program knows make other code than those that it loads.
TEST(Codegen, RoundingShifts) {
  for (const ir::DType type : {ir::kI8, ir::kI16, ir::kI32, ir::kI64}) {
    for (const int64_t known : {-1, 0, 1, 2, type.bits / 2, type.bits - 1, int{type.bits}}) {
      ir::FunctionBuilder b("shifts");
      Buffer x = b.Input("X", type, Shape({61})), n = b.Input("N", ir::kU8, Shape({61}));
      Buffer y = b.Compute("Y", type, Shape({61}), {"i"}, [&](const std::vector<Var>& v) {
        const Expr count =
            known < 0 ? ir::Cast(type, ir::FloorMod(ir::Load(n, {v[0]}), ir::Int(80, ir::kU8)))
                      : ir::Int(known, type);
        return ir::Call(ir::Intrinsic::kRoundingShiftRight, {ir::Load(x, {v[0]}), count});
      });
      ir::Function f = b.Finish({y});
      Script s(f);
      s.Do("split %Y.0 [?,8]").Do("vectorize %Y.1");
      CheckSchedule(MakeCase(f), s.Text());
    }
  }
}

TEST(Codegen, WideningProducts) {
  for (const ir::DType type : {ir::kI8, ir::kU8, ir::kI16, ir::kU16, ir::kI32, ir::kU32}) {
    ir::FunctionBuilder b("products");
    Buffer x = b.Input("X", type, Shape({61})), w = b.Input("W", type, Shape({61}));
    const ir::DType wide = ir::CallType(ir::Intrinsic::kWideningMul, type);
    Buffer y = b.Compute("Y", wide, Shape({61}), {"i"}, [&](const std::vector<Var>& v) {
      return ir::Call(ir::Intrinsic::kWideningMul, {ir::Load(x, {v[0]}), ir::Load(w, {v[0]})});
    });
    ir::Function f = b.Finish({y});
    Script s(f);
    s.Do("split %Y.0 [?,8]").Do("vectorize %Y.1");
    CheckSchedule(MakeCase(f), s.Text());
  }
}

// Weights of four bits: with 16 lanes, some machines look them up in a table.
TEST(Codegen, FieldsOfWordsAsFloats) {
  for (const int64_t mask : {15, 7}) {
    for (const int lanes : {16, 8}) {
      ir::FunctionBuilder b("fields");
      Buffer x = b.Input("X", ir::kI32, Shape({53}));
      Buffer y = b.Compute("Y", ir::kF32, Shape({53}), {"i"}, [&](const std::vector<Var>& v) {
        Expr sum = ir::Float(0);
        for (const int64_t shift : {0, 4, 28}) {
          const Expr word =
              ir::Call(ir::Intrinsic::kShiftRight, {ir::Load(x, {v[0]}), ir::Int(shift, ir::kI32)});
          const Expr field = ir::Call(ir::Intrinsic::kBitAnd, {word, ir::Int(mask, ir::kI32)});
          sum = sum * ir::Float(16) + ir::Cast(ir::kF32, field);
        }
        return sum;
      });
      ir::Function f = b.Finish({y});
      Script s(f);
      s.Do("split %Y.0 [?," + std::to_string(lanes) + "]").Do("vectorize %Y.1");
      CheckSchedule(MakeCase(f), s.Text());
    }
  }
}

}  // namespace
}  // namespace tilewright
