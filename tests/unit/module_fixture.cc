#include "tests/unit/module_fixture.h"

#include <cstring>
#include <utility>

#include "deploy/module/size_plan.h"
#include "deploy/runtime/code_loader.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"

namespace tilewright::test {
namespace {

using module::DType;
using module::Function;
using module::Launch;
using module::Manifest;
using module::ModuleParts;
using module::Tensor;
using module::TensorKind;

constexpr uint64_t kMaxCode = 16 << 20;

std::string KernelCode() {
  absl::StatusOr<std::string> code = support::ReadFile(TILEWRIGHT_TEST_KERNELS, kMaxCode);
  TW_CHECK(code.ok()) << support::StatusText(code.status());
  return *std::move(code);
}

int64_t AddTensor(Manifest* m, std::string name, std::vector<module::Dim> shape, TensorKind kind,
                  int64_t offset = 0) {
  Tensor t;
  t.id = static_cast<int64_t>(m->tensors.size());
  t.name = std::move(name);
  t.bytes = module::NumElements(shape).value_or(0) * 4;
  t.shape = std::move(shape);
  t.kind = kind;
  t.offset = offset;
  m->tensors.push_back(t);
  return t.id;
}

Launch Call(const std::string& kernel, std::vector<int64_t> args, std::vector<module::Dim> sizes,
            module::Dim workspace_bytes = 0) {
  Launch launch;
  launch.symbol = "tw_kernel_" + kernel;
  launch.name = kernel;
  launch.args = std::move(args);
  launch.sizes = std::move(sizes);
  launch.workspace_bytes = workspace_bytes;
  return launch;
}

std::vector<float> DenseWeights() {
  std::vector<float> w;
  for (int64_t k = 0; k < kInner; ++k) {
    for (int64_t n = 0; n < kColumns; ++n) {
      w.push_back(static_cast<float>(k) - 0.25f * static_cast<float>(n));
    }
  }
  return w;
}

std::vector<float> DenseBias() {
  std::vector<float> b;
  for (int64_t n = 0; n < kColumns; ++n) b.push_back(100.0f * static_cast<float>(n));
  return b;
}

std::string Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

ModuleParts DenseModule() {
  ModuleParts parts;
  Manifest& m = parts.manifest;
  m.name = "dense";
  m.target = "native";
  m.producer = {{"tilewright", "test"}};
  const int64_t x = AddTensor(&m, "x", {kRows, kInner}, TensorKind::kInput);
  const int64_t w = AddTensor(&m, "w", {kInner, kColumns}, TensorKind::kConstant, 0);
  const int64_t packed = AddTensor(&m, "", {kColumns, kInner}, TensorKind::kPrepared, 0);
  const int64_t product = AddTensor(&m, "", {kRows, kColumns}, TensorKind::kIntermediate, 512);
  std::vector<float> rows;  // the bias once per row, so that the addition needs no broadcast
  for (int64_t i = 0; i < kRows; ++i) {
    const std::vector<float> row = DenseBias();
    rows.insert(rows.end(), row.begin(), row.end());
  }
  const int64_t b = AddTensor(&m, "b", {kRows, kColumns}, TensorKind::kConstant, 512);
  const int64_t y = AddTensor(&m, "y", {kRows, kColumns}, TensorKind::kOutput);
  m.arena_bytes = 512 + kRows * kColumns * 4;
  m.workspace_bytes = kRows * kColumns * 4;
  parts.constants = Bytes(DenseWeights()) + Bytes(rows);
  Function main;
  main.name = "main";
  main.inputs = {x};
  main.outputs = {y};
  main.prepare = {Call("pack", {w, packed}, {kInner, kColumns})};
  main.launches = {
      Call("matmul", {x, packed, product}, {kRows, kInner, kColumns}, m.workspace_bytes),
      Call("add", {product, b, y}, {kRows * kColumns})};
  m.functions = {main};
  m.code.push_back({std::string(runtime::NativeCodeFormat()), 1, 0, ""});
  parts.code = {KernelCode()};
  return parts;
}

std::vector<float> DenseReference(const std::vector<float>& x) {
  const std::vector<float> w = DenseWeights();
  const std::vector<float> b = DenseBias();
  std::vector<float> y;
  for (size_t m = 0; m < kRows; ++m) {
    for (size_t n = 0; n < kColumns; ++n) {
      double sum = b[n];
      for (size_t k = 0; k < kInner; ++k) sum += double{x[m * kInner + k]} * w[k * kColumns + n];
      y.push_back(static_cast<float>(sum));
    }
  }
  return y;
}

ModuleParts ColumnSumsModule(bool specialised) {
  ModuleParts parts;
  Manifest& m = parts.manifest;
  m.name = "column_sums";
  m.target = "native";
  m.producer = {{"tilewright", "test"}};
  m.size_vars = {{"N", 1, kMostRows}, {"past", 0, kMostEntries}};
  const module::Dim past = module::Dim::Variable("past");
  m.state = {"past", module::Dim::Variable("N") + past};
  const auto add = [&](const std::string& name, const module::Dim& n) {
    const module::Dim all = n + past;
    const int64_t x = AddTensor(&m, "x", {n, kColumns}, TensorKind::kInput);
    const int64_t list = AddTensor(&m, "rows", {all, kColumns}, TensorKind::kState);
    if (!m.functions.empty()) m.tensors.back().same_list = 1;
    const int64_t entries = AddTensor(&m, "", {n, kColumns}, TensorKind::kState);
    m.tensors.back().entries_of = list;
    const int64_t y = AddTensor(&m, "y", {kColumns}, TensorKind::kOutput);
    Function f;
    f.name = name;
    f.inputs = {x};
    f.outputs = {y};
    f.launches = {Call("add", {x, x, entries}, {n * kColumns}),
                  Call("column_sums", {list, y}, {all, kColumns})};
    m.functions.push_back(f);
  };
  add("main", module::Dim::Variable("N"));
  if (specialised) {
    add("one", 1);
    m.functions[1].at = {{"N", 1}};
  }
  const absl::Status complete = module::SetNeedsAtMaxima(&m);
  TW_CHECK(complete.ok()) << support::StatusText(complete);
  m.code.push_back({std::string(runtime::NativeCodeFormat()), 1, 0, ""});
  parts.code = {KernelCode()};
  return parts;
}

ModuleParts OpenRowsModule(bool specialised) {
  ModuleParts parts;
  Manifest& m = parts.manifest;
  m.name = "open_rows";
  m.target = "native";
  m.producer = {{"tilewright", "test"}};
  m.size_vars = {{"N", 1, kMostRows}};
  const int64_t w = AddTensor(&m, "w", {kInner, kColumns}, TensorKind::kConstant);
  const int64_t packed = AddTensor(&m, "", {kColumns, kInner}, TensorKind::kPrepared);
  parts.constants = Bytes(DenseWeights());
  const auto add = [&](const std::string& name, const module::Dim& n) {
    Function f;
    f.name = name;
    const int64_t x = AddTensor(&m, "x", {n, kInner}, TensorKind::kInput);
    const int64_t once = AddTensor(&m, "", {n, kColumns}, TensorKind::kIntermediate);
    const int64_t twice = AddTensor(&m, "", {n, kColumns}, TensorKind::kIntermediate);
    m.tensors.back().after = {once};
    const int64_t y = AddTensor(&m, "y", {n, kColumns}, TensorKind::kOutput);
    f.inputs = {x};
    f.outputs = {y};
    f.prepare = {Call("pack_more", {w, packed}, {kInner, kColumns})};
    f.launches = {Call("matmul", {x, packed, once}, {n, kInner, kColumns}, n * (kColumns * 4)),
                  Call("add", {once, once, twice}, {n * kColumns}),
                  Call("add", {twice, once, y}, {n * kColumns})};
    m.functions.push_back(f);
  };
  add("main", module::Dim::Variable("N"));
  m.functions[0].launches[0].open_flops = m.functions[0].launches[0].sizes[0] * (kInner * kColumns);
  if (specialised) {
    add("four", 4);
    m.functions[1].at = {{"N", 4}};
  }
  const absl::Status complete = module::SetNeedsAtMaxima(&m);
  TW_CHECK(complete.ok()) << support::StatusText(complete);
  m.code.push_back({std::string(runtime::NativeCodeFormat()), 1, 0, ""});
  parts.code = {KernelCode()};
  return parts;
}

std::vector<float> OpenRowsReference(const std::vector<float>& x) {
  const std::vector<float> w = DenseWeights();
  std::vector<float> y;
  for (size_t m = 0; m < x.size() / kInner; ++m) {
    for (size_t n = 0; n < kColumns; ++n) {
      float sum = 0;
      for (size_t k = 0; k < kInner; ++k) sum += x[m * kInner + k] * w[k * kColumns + n];
      y.push_back(3 * sum);
    }
  }
  return y;
}

ModuleParts TwoSizesModule() {
  ModuleParts parts;
  Manifest& m = parts.manifest;
  m.name = "two_sizes";
  m.target = "native";
  m.size_vars = {{"M", 1, 9}, {"N", 1, 9}};
  const auto add = [&](const std::string& name, const module::Dim& n, const module::Dim& k,
                       const module::Sizes& at) {
    Function f;
    f.name = name;
    f.at = at;
    f.inputs = {AddTensor(&m, "x", {n}, TensorKind::kInput),
                AddTensor(&m, "w", {k}, TensorKind::kInput)};
    f.outputs = {AddTensor(&m, "y", {n}, TensorKind::kOutput),
                 AddTensor(&m, "z", {k}, TensorKind::kOutput)};
    for (size_t i : {0, 1}) {
      f.launches.push_back(Call("add", {f.inputs[i], f.inputs[i], f.outputs[i]}, {i == 0 ? n : k}));
    }
    m.functions.push_back(f);
  };
  const module::Dim n = module::Dim::Variable("N"), k = module::Dim::Variable("M");
  add("main", n, k, {});
  add("four", 4, k, {{"N", 4}});
  add("two", n, 2, {{"M", 2}});
  add("both", 4, 2, {{"M", 2}, {"N", 4}});
  const absl::Status complete = module::SetNeedsAtMaxima(&m);
  TW_CHECK(complete.ok()) << support::StatusText(complete);
  m.code.push_back({std::string(runtime::NativeCodeFormat()), 1, 0, ""});
  parts.code = {KernelCode()};
  return parts;
}

ModuleParts EveryTypeModule() {
  ModuleParts parts;
  Manifest& m = parts.manifest;
  m.name = "every_type";
  m.target = "native";
  Function main;
  main.name = "main";
  for (int i = 0; i <= static_cast<int>(DType::kFloat64); ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string name(module::DTypeName(dtype));
    const int64_t x = AddTensor(&m, "x_" + name, {2, 3}, TensorKind::kInput);
    const int64_t y = AddTensor(&m, "y_" + name, {2, 3}, TensorKind::kOutput);
    const int64_t bytes = 6 * module::DTypeBytes(dtype);
    for (const int64_t id : {x, y}) {
      m.tensors[static_cast<size_t>(id)].dtype = dtype;
      m.tensors[static_cast<size_t>(id)].bytes = bytes;
    }
    main.inputs.push_back(x);
    main.outputs.push_back(y);
    main.launches.push_back(Call("copy", {x, y}, {bytes}));
  }
  m.functions = {main};
  m.code.push_back({std::string(runtime::NativeCodeFormat()), 1, 0, ""});
  parts.code = {KernelCode()};
  return parts;
}

ModuleParts OneKernelModule(const std::string& symbol, int64_t elements,
                            std::vector<int64_t> sizes) {
  ModuleParts parts;
  Manifest& m = parts.manifest;
  m.name = symbol;
  const int64_t x = AddTensor(&m, "x", {elements}, TensorKind::kInput);
  const int64_t y = AddTensor(&m, "y", {elements}, TensorKind::kOutput);
  m.functions = {
      Function{"main", {x}, {y}, {}, {Call(symbol, {x, y}, {sizes.begin(), sizes.end()})}}};
  m.code.push_back({std::string(runtime::NativeCodeFormat()), 1, 0, ""});
  parts.code = {KernelCode()};
  return parts;
}

ModuleParts FormatModule() {
  ModuleParts parts = DenseModule();
  Manifest& m = parts.manifest;
  m.name = "format \"quoted\" \xC3\xA9\n";
  m.cpu_features = {"avx2", "fma"};
  m.provenance = {{"job", "projects/default/jobs/7"}, {"model_digest", std::string(64, 'a')}};
  m.functions[0].launches[0].steps = "split %3 [4,16,?,8]\nvectorize %5";
  m.functions[0].launches[0].task = "00ff";
  m.functions[0].launches[0].program_hash = "1234";
  m.functions[0].launches[0].flops = 1024;
  module::Measurement measurement;
  measurement.inputs = {
      {0, 0xFFFFFFFFFFFFFFFFULL, {module::Distribution::Kind::kUniform, -0.1, 1e-7}}};
  measurement.expected_digest = std::string(64, 'b');
  measurement.tolerance = {1e-5, 0.001};
  measurement.flops = 1.5e9;
  m.measurement = measurement;
  parts.code = {"code!", std::string(5000, 'x')};
  m.code = {{"elf-x86_64", 1, 0, ""}, {"elf-aarch64", 1, 0, ""}};
  return parts;
}

}  // namespace tilewright::test
