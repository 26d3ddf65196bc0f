#include "deploy/module/manifest.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <set>
#include <utility>

#include "deploy/module/loops_check.h"
#include "deploy/module/open_sizes_check.h"
#include "deploy/module/state_check.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::module {
namespace {

using support::InvalidArgument;

// Bounds that keep absurd manifests from being allocated.
constexpr size_t kMaxRank = 32;
constexpr size_t kMaxText = size_t{1} << 20;
constexpr int64_t kMaxGroups = int64_t{1} << 31;
constexpr int64_t kMaxGroupThreads = 1 << 16;
constexpr std::string_view kSymbolPrefix = "tw_kernel_";

std::string At(std::string_view what, size_t index) {
  return std::string(what) + "[" + std::to_string(index) + "]";
}

bool IsIdentifier(std::string_view text) {
  if (text.empty() || text.size() > 1024) return false;
  if (text[0] >= '0' && text[0] <= '9') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

absl::Status CheckBytes(int64_t bytes, std::string_view where) {
  if (bytes < 0 || bytes > kMaxBytes) {
    return BadManifest(
        "size", where,
        "expected 0 to " + std::to_string(kMaxBytes) + ", found " + std::to_string(bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckFeatures(const std::vector<std::string>& features, const std::string& where) {
  for (size_t i = 0; i < features.size(); ++i) {
    if (features[i].empty() || (i > 0 && features[i - 1] >= features[i])) {
      return BadManifest("features", At(where, i), "expected sorted, unique names");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCount(double value, std::string_view where) {
  if (!std::isfinite(value) || value < 0) {
    return BadManifest("number", where, "expected a finite number >= 0");
  }
  return absl::OkStatus();
}

// The walk over one manifest; every check names the place that it looks at.
class Validator {
 public:
  explicit Validator(const Manifest& manifest) : m_(manifest) {}

  absl::Status Run() {
    TW_TRY(Header());
    TW_TRY(Tensors());
    TW_TRY(PreparedApart());
    TW_TRY(Code());
    TW_TRY(Functions());
    if (m_.open_sizes()) TW_TRY(CheckOpenSizes(m_));
    TW_TRY(CheckState(m_));
    return m_.measurement.has_value() ? CheckMeasurement(*m_.measurement) : absl::OkStatus();
  }

 private:
  absl::Status Header();
  absl::Status SizeVars();
  absl::Status Tensors();
  absl::Status CheckTensor(const Tensor& tensor, const std::string& where);
  absl::Status CheckShape(const Tensor& tensor, const std::string& where);
  absl::Status PreparedApart();
  absl::Status Code();
  absl::Status Functions();
  absl::Status CheckFunction(const Function& function, const std::string& where);
  absl::Status CheckSizeCheck(const SizeCheck& check, const std::string& where);
  absl::Status CheckEnds(const std::vector<int64_t>& ids, TensorKind kind,
                         const std::string& where);
  absl::Status CheckLaunch(const Launch& launch, bool prepare, const std::string& where);
  absl::Status CheckGrid(const Launch& launch, const std::string& where);
  absl::Status CheckArgs(const Launch& launch, bool prepare, const std::string& where);
  absl::Status CheckMeasurement(const Measurement& measurement);

  const Tensor* TensorAt(int64_t id) const {
    if (id < 0 || static_cast<size_t>(id) >= m_.tensors.size()) return nullptr;
    return &m_.tensors[static_cast<size_t>(id)];
  }

  const Manifest& m_;
  // Of the function being checked: its inputs and outputs, and what its launches write.
  std::set<int64_t> ends_;
  std::set<int64_t> written_;
};

absl::Status Validator::Header() {
  const int64_t version = m_.NeededFormatVersion();
  if (m_.format_version != version) {
    return BadManifest(
        "version", "format_version",
        "expected " + std::to_string(version) + ", found " + std::to_string(m_.format_version));
  }
  if (m_.name.size() > kMaxText) return BadManifest("text", "name", "too long");
  TW_TRY(CheckFeatures(m_.cpu_features, "cpu_features"));
  TW_TRY(CheckBytes(m_.arena_bytes, "arena_bytes"));
  if (m_.alignment < kLeastTensorAlignment || m_.alignment > kTensorAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(m_.alignment))) {
    return BadManifest("alignment", "alignment",
                       "expected 16, 32 or 64, found " + std::to_string(m_.alignment));
  }
  TW_TRY(CheckBytes(m_.workspace_bytes, "workspace_bytes"));
  TW_TRY(CheckBytes(m_.constants_bytes, "constants_bytes"));
  const bool digest_ok = m_.constants_bytes == 0 ? m_.constants_digest.empty()
                                                 : support::IsSha256Hex(m_.constants_digest);
  if (!digest_ok)
    return BadManifest("digest", "constants_digest", "expected SHA-256 iff there are any");
  return SizeVars();
}

absl::Status Validator::SizeVars() {
  if (!m_.open_sizes() && !m_.equal_sizes.empty()) {
    return BadManifest("equal_sizes", "equal_sizes", "expected none without size variables");
  }
  std::set<std::string> names;
  for (size_t i = 0; i < m_.size_vars.size(); ++i) {
    const SizeVar& var = m_.size_vars[i];
    if (!IsIdentifier(var.name) || !names.insert(var.name).second) {
      return BadManifest("size_var", At("size_vars", i), "expected a new identifier as name");
    }
    if (var.min < 0 || var.min > var.max) {
      return BadManifest("size_var", At("size_vars", i), "expected 0 <= min <= max");
    }
  }
  return absl::OkStatus();
}

absl::Status Validator::Tensors() {
  for (size_t i = 0; i < m_.tensors.size(); ++i) {
    const Tensor& tensor = m_.tensors[i];
    const std::string where = At("tensors", i);
    if (tensor.id != static_cast<int64_t>(i)) {
      return BadManifest(
          "tensor_id", where,
          "expected id " + std::to_string(i) + ", found " + std::to_string(tensor.id));
    }
    TW_TRY(CheckTensor(tensor, where));
    const bool end = tensor.kind == TensorKind::kInput || tensor.kind == TensorKind::kOutput;
    if (end && tensor.name.empty()) {
      return BadManifest("tensor_name", where, "inputs and outputs need a name");
    }
  }
  return absl::OkStatus();
}

absl::Status Validator::CheckTensor(const Tensor& tensor, const std::string& where) {
  if (tensor.name.size() > kMaxText) return BadManifest("text", where, "name too long");
  TW_TRY(CheckBytes(tensor.bytes, where + ".bytes"));
  TW_TRY(CheckShape(tensor, where));
  int64_t end = 0;
  switch (tensor.kind) {
    case TensorKind::kInput:
    case TensorKind::kOutput:
    case TensorKind::kState:
      if (tensor.offset != 0)
        return BadManifest("tensor_offset", where, "expected 0 for this kind");
      return absl::OkStatus();
    case TensorKind::kConstant:
      end = m_.constants_bytes;
      break;
    case TensorKind::kIntermediate:
      end = m_.arena_bytes;
      break;
    case TensorKind::kPrepared:
      end = m_.open_sizes() ? kMaxBytes : m_.arena_bytes;
      break;
  }
  if (tensor.offset < 0 || tensor.offset % m_.alignment != 0 || tensor.offset > end ||
      tensor.bytes > end - tensor.offset) {
    return BadManifest("tensor_offset", where,
                       "expected a multiple of " + std::to_string(m_.alignment) + " with " +
                           std::to_string(tensor.bytes) + " bytes inside " + std::to_string(end) +
                           ", found " + std::to_string(tensor.offset));
  }
  return absl::OkStatus();
}

absl::Status Validator::CheckShape(const Tensor& tensor, const std::string& where) {
  if (tensor.shape.size() > kMaxRank) return BadManifest("shape", where, "rank above 32");
  for (const Dim& dim : tensor.shape) {
    if (dim.constant().value_or(0) < 0)
      return BadManifest("shape", where, "expected dimensions >= 0");
  }
  if (!tensor.after.empty() && !m_.open_sizes()) {
    return BadManifest("after", where, "expected an offset: the module has no size_vars");
  }
  if (IsOpen(tensor.shape)) {
    if (!m_.open_sizes()) return BadManifest("shape", where, "an expression without any size_vars");
    return absl::OkStatus();
  }
  const std::optional<int64_t> count = NumElements(tensor.shape);
  int64_t bytes = 0;
  if (!count.has_value() || __builtin_mul_overflow(*count, DTypeBytes(tensor.dtype), &bytes) ||
      bytes != tensor.bytes) {
    return BadManifest("tensor_bytes", where,
                       ShapeText(tensor.shape) + " of " + std::string(DTypeName(tensor.dtype)) +
                           " does not have " + std::to_string(tensor.bytes) + " bytes");
  }
  return absl::OkStatus();
}

// A prepared tensor outlives runs, so nothing that a run writes may share its place.
absl::Status Validator::PreparedApart() {
  struct Span {
    int64_t begin, end, id;
    bool prepared;
  };
  std::vector<Span> spans;
  if (m_.open_sizes()) return absl::OkStatus();  // they have a region of their own
  for (const Tensor& t : m_.tensors) {
    const bool prepared = t.kind == TensorKind::kPrepared;
    if (t.bytes > 0 && (prepared || t.kind == TensorKind::kIntermediate)) {
      spans.push_back({t.offset, t.offset + t.bytes, t.id, prepared});
    }
  }
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::pair(a.begin, a.id) < std::pair(b.begin, b.id);
  });
  int64_t end_of[2] = {0, 0};  // furthest end so far of intermediates and of prepared tensors
  for (const Span& span : spans) {
    if (span.begin < end_of[span.prepared ? 0 : 1]) {
      return BadManifest("prepared_overlap", At("tensors", static_cast<size_t>(span.id)),
                         "a prepared tensor shares its place with an intermediate");
    }
    int64_t& end = end_of[span.prepared ? 1 : 0];
    end = std::max(end, span.end);
  }
  return absl::OkStatus();
}

absl::Status Validator::Code() {
  for (size_t i = 0; i < m_.code.size(); ++i) {
    const CodeObject& code = m_.code[i];
    const std::string where = At("code", i);
    if (code.format.empty() || code.format.size() > 64)
      return BadManifest("code", where, "bad format");
    if (!code.device.empty() && !IsIdentifier(code.device)) {
      return BadManifest("code", where, "expected the kind of a device");
    }
    TW_TRY(CheckFeatures(code.features, where + ".features"));
    if (!code.features.empty() && code.device.empty()) {
      return BadManifest("code", where, "expected features of a device's code only");
    }
    if (code.abi_version < 1) return BadManifest("code", where, "expected abi_version >= 1");
    TW_TRY(CheckBytes(code.size, where + ".size"));
    if (!support::IsSha256Hex(code.digest))
      return BadManifest("digest", where, "expected a SHA-256 in hex");
  }
  return absl::OkStatus();
}

absl::Status Validator::Functions() {
  if (m_.functions.empty()) return BadManifest("functions", "functions", "expected at least one");
  std::set<std::string> names;
  for (size_t i = 0; i < m_.functions.size(); ++i) {
    const Function& function = m_.functions[i];
    if (!IsIdentifier(function.name) || !names.insert(function.name).second) {
      return BadManifest("functions", At("functions", i), "expected a new identifier as name");
    }
    if (!function.at.empty() && !m_.open_sizes()) {
      return BadManifest("at", At("functions", i), "the module has no size_vars");
    }
    TW_TRY(CheckFunction(function, At("functions", i)));
  }
  return absl::OkStatus();
}

absl::Status Validator::CheckFunction(const Function& function, const std::string& where) {
  TW_TRY(CheckEnds(function.inputs, TensorKind::kInput, where + ".inputs"));
  TW_TRY(CheckEnds(function.outputs, TensorKind::kOutput, where + ".outputs"));
  std::vector<int64_t> written = function.outputs;  // what launches have to write
  for (size_t i = 0; i < function.checks.size(); ++i) {
    TW_TRY(CheckSizeCheck(function.checks[i], At(where + ".checks", i)));
    written.push_back(function.checks[i].tensor);
  }
  TW_TRY(CheckEnds(written, TensorKind::kOutput, where + ".checks"));
  ends_ = std::set<int64_t>(function.inputs.begin(), function.inputs.end());
  ends_.insert(written.begin(), written.end());
  written_.clear();
  for (size_t i = 0; i < function.prepare.size(); ++i) {
    TW_TRY(CheckLaunch(function.prepare[i], true, At(where + ".prepare", i)));
  }
  for (size_t i = 0; i < function.launches.size(); ++i) {
    TW_TRY(CheckLaunch(function.launches[i], false, At(where + ".launches", i)));
  }
  TW_TRY(CheckLoops(m_, function, where));
  for (const int64_t id : WrittenByLoops(function)) written_.insert(id);
  for (const int64_t id : written) {
    if (!written_.contains(id) && TensorAt(id)->bytes > 0) {
      return BadManifest("unwritten_output", where,
                         "no launch writes tensor " + std::to_string(id));
    }
  }
  return absl::OkStatus();
}

absl::Status Validator::CheckSizeCheck(const SizeCheck& check, const std::string& where) {
  const Tensor* tensor = TensorAt(check.tensor);
  const std::vector<Dim> shape = {static_cast<int64_t>(check.expected.size())};
  if (tensor == nullptr || tensor->dtype != DType::kInt64 || tensor->shape != shape ||
      check.expected.empty()) {
    return BadManifest(
        "check", where,
        "expected an i64 tensor with an element for each of the numbers expected, found " +
            std::to_string(check.tensor));
  }
  if (!m_.open_sizes() && IsOpen(check.expected)) {
    return BadManifest("check", where, "expected numbers in a module without size variables");
  }
  if (check.what.size() > kMaxText) return BadManifest("text", where, "what: too long");
  return absl::OkStatus();
}

absl::Status Validator::CheckEnds(const std::vector<int64_t>& ids, TensorKind kind,
                                  const std::string& where) {
  std::set<int64_t> seen;
  std::set<std::string_view> names;
  for (const int64_t id : ids) {
    const Tensor* tensor = TensorAt(id);
    if (tensor == nullptr || tensor->kind != kind || !seen.insert(id).second) {
      return BadManifest("function_ends", where,
                         "expected distinct tensors of kind " + std::string(TensorKindName(kind)) +
                             ", found " + std::to_string(id));
    }
    if (!names.insert(tensor->name).second) {
      return BadManifest("tensor_name", where, "two of the name '" + tensor->name + "'");
    }
  }
  return absl::OkStatus();
}

absl::Status Validator::CheckLaunch(const Launch& launch, bool prepare, const std::string& where) {
  if (!IsIdentifier(launch.symbol) || launch.symbol.rfind(kSymbolPrefix, 0) != 0) {
    return BadManifest("symbol", where, "expected tw_kernel_<name>, found '" + launch.symbol + "'");
  }
  if (launch.code < 0 || static_cast<size_t>(launch.code) >= m_.code.size()) {
    return BadManifest("code_index", where, "no code object " + std::to_string(launch.code));
  }
  const bool fixed =
      launch.workspace_bytes.constant() && !IsOpen(launch.sizes) && !launch.open_flops;
  if (!fixed && !m_.open_sizes()) {
    return BadManifest("expression", where, "an expression without any size_vars");
  }
  const int64_t workspace = launch.workspace_bytes.constant().value_or(0);
  if (workspace < 0 || workspace > m_.workspace_bytes) {
    return BadManifest("workspace", where, "workspace_bytes exceeds the module's");
  }
  TW_TRY(CheckCount(launch.flops, where + ".flops"));
  TW_TRY(CheckGrid(launch, where));
  return CheckArgs(launch, prepare, where);
}

absl::Status Validator::CheckGrid(const Launch& launch, const std::string& where) {
  const std::array<int64_t, 3> none{};
  if (launch.grid == none && launch.group == none) return absl::OkStatus();
  int64_t threads = 1;
  for (size_t axis = 0; axis < none.size(); ++axis) {
    threads *= std::clamp<int64_t>(launch.group[axis], 0, kMaxGroupThreads + 1);
    if (launch.grid[axis] < 1 || launch.grid[axis] > kMaxGroups || threads < 1 ||
        threads > kMaxGroupThreads) {
      return BadManifest("grid", where,
                         "expected grid and group of three extents each, at least 1, at most " +
                             std::to_string(kMaxGroups) + " groups along an axis and " +
                             std::to_string(kMaxGroupThreads) + " threads in a group");
    }
  }
  return absl::OkStatus();
}

absl::Status Validator::CheckArgs(const Launch& launch, bool prepare, const std::string& where) {
  const auto count = static_cast<int64_t>(launch.args.size());
  if (launch.num_outputs < 1 || launch.num_outputs > count) {
    return BadManifest("num_outputs", where, "expected 1 to " + std::to_string(count));
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = launch.args[static_cast<size_t>(i)];
    const Tensor* tensor = TensorAt(id);
    const std::string arg = At(where + ".args", static_cast<size_t>(i));
    if (tensor == nullptr) return BadManifest("arg", arg, "no tensor " + std::to_string(id));
    const bool end = tensor->kind == TensorKind::kInput || tensor->kind == TensorKind::kOutput;
    if (end && !ends_.contains(id)) {
      return BadManifest("arg", arg, "an input or output of another function");
    }
    if (i < count - launch.num_outputs) continue;
    const TensorKind own = prepare ? TensorKind::kPrepared : TensorKind::kOutput;
    const bool writable = tensor->kind == own || tensor->kind == TensorKind::kIntermediate ||
                          (!prepare && tensor->entries_of.has_value());
    if (!writable) {
      return BadManifest("arg", arg,
                         "a " + std::string(prepare ? "prepare " : "") +
                             "launch may not write a tensor " + "of kind " +
                             std::string(TensorKindName(tensor->kind)));
    }
    written_.insert(id);
  }
  return absl::OkStatus();
}

absl::Status CheckDistribution(const Distribution& d, const std::string& where) {
  const bool finite = std::isfinite(d.a) && std::isfinite(d.b);
  bool ok = false;
  switch (d.kind) {
    case Distribution::Kind::kUniform:
      ok = d.a < d.b;
      break;
    case Distribution::Kind::kNormal:
      ok = d.b >= 0;
      break;
    case Distribution::Kind::kIntRange:
      ok = d.a <= d.b && std::abs(d.a) < 0x1p53 && std::abs(d.b) < 0x1p53 &&
           d.a == std::floor(d.a) && d.b == std::floor(d.b);
      break;
  }
  return finite && ok ? absl::OkStatus()
                      : BadManifest("distribution", where, "impossible parameters");
}

absl::Status Validator::CheckMeasurement(const Measurement& measurement) {
  const Function* main = m_.FindFunction("main");
  if (main == nullptr)
    return BadManifest("measurement", "measurement", "there is no function main");
  std::set<int64_t> open(main->inputs.begin(), main->inputs.end());
  for (size_t i = 0; i < measurement.inputs.size(); ++i) {
    const InputSpec& input = measurement.inputs[i];
    const std::string where = At("measurement.inputs", i);
    if (open.erase(input.tensor) == 0) {
      return BadManifest("measurement", where, "expected each input of main once");
    }
    TW_TRY(CheckDistribution(input.distribution, where));
  }
  if (!open.empty())
    return BadManifest("measurement", "measurement.inputs", "an input of main is missing");
  if (!measurement.expected_digest.empty() && !support::IsSha256Hex(measurement.expected_digest)) {
    return BadManifest("digest", "measurement.expected_digest", "expected a SHA-256 in hex");
  }
  TW_TRY(CheckCount(measurement.tolerance.abs, "measurement.tolerance.abs"));
  TW_TRY(CheckCount(measurement.tolerance.rel, "measurement.tolerance.rel"));
  return CheckCount(measurement.flops, "measurement.flops");
}

}  // namespace

absl::Status BadManifest(std::string_view reason, std::string_view where, std::string_view detail) {
  return InvalidArgument("module.manifest." + std::string(reason),
                         std::string(where) + ": " + std::string(detail));
}

std::string_view TensorKindName(TensorKind kind) {
  switch (kind) {
    case TensorKind::kInput:
      return "input";
    case TensorKind::kOutput:
      return "output";
    case TensorKind::kConstant:
      return "constant";
    case TensorKind::kIntermediate:
      return "intermediate";
    case TensorKind::kPrepared:
      return "prepared";
    case TensorKind::kState:
      return "state";
  }
  return "";
}

int Manifest::StateVariable() const {
  for (size_t v = 0; state && v < size_vars.size(); ++v) {
    if (size_vars[v].name == state->length) return static_cast<int>(v);
  }
  return -1;
}

int64_t Manifest::ListOf(const Tensor& tensor) const {
  const int64_t list = tensor.entries_of.value_or(tensor.id);
  return tensors[static_cast<size_t>(list)].same_list.value_or(list);
}

int64_t Manifest::NeededFormatVersion() const {
  const auto finds = [](const Function& f) {
    return std::ranges::any_of(f.checks, [](const SizeCheck& c) { return IsOpen(c.expected); });
  };
  const auto loops = [](const Function& f) { return !f.loops.empty(); };
  const auto both = [&](const Function& f) { return loops(f) && !f.checks.empty(); };
  if (alignment != kTensorAlignment) return kAlignmentFormatVersion;
  if (std::ranges::any_of(functions, both)) return kLoopChecksFormatVersion;
  if (std::ranges::any_of(functions, loops)) return kLoopsFormatVersion;
  if (std::ranges::any_of(functions, finds)) return kFoundSizesFormatVersion;
  if (state && functions.size() > 1) return kSharedStateFormatVersion;
  if (!equal_sizes.empty()) return kEqualSizesFormatVersion;
  if (state) return kStateFormatVersion;
  return open_sizes() ? kOpenSizesFormatVersion : kManifestFormatVersion;
}

const Function* Manifest::FindFunction(std::string_view function_name) const {
  for (const Function& function : functions) {
    if (function.name == function_name) return &function;
  }
  return nullptr;
}

absl::Status ValidateManifest(const Manifest& manifest) { return Validator(manifest).Run(); }

std::optional<int64_t> NumElements(const std::vector<Dim>& shape) {
  int64_t count = 1;
  bool zero = false;
  bool overflow = false;
  for (const Dim& dim : shape) {
    const int64_t extent = dim.constant().value_or(-1);
    if (extent < 0) return std::nullopt;
    zero = zero || extent == 0;
    overflow = __builtin_mul_overflow(count, std::max<int64_t>(extent, 1), &count) || overflow;
  }
  if (overflow) return std::nullopt;
  return zero ? 0 : count;
}

int TargetThreads(std::string_view target) {
  constexpr std::string_view kKey = "threads=";
  constexpr int64_t kMost = 1024;
  for (const std::string& part : support::Split(target, ',')) {
    if (!part.starts_with(kKey)) continue;
    const int64_t threads =
        support::ParseInt64(std::string_view(part).substr(kKey.size())).value_or(1);
    return static_cast<int>(std::clamp<int64_t>(threads, 1, kMost));
  }
  return 1;
}

bool IsOpen(const std::vector<Dim>& shape) {
  return std::any_of(shape.begin(), shape.end(), [](const Dim& dim) { return !dim.constant(); });
}

std::vector<int64_t> FixedExtents(const std::vector<Dim>& shape) {
  std::vector<int64_t> extents;
  for (const Dim& dim : shape) extents.push_back(dim.value());
  return extents;
}

std::string ShapeText(const std::vector<Dim>& shape) {
  if (shape.empty()) return "scalar";
  std::string text;
  for (const Dim& dim : shape) {
    if (!text.empty()) text += 'x';
    std::string part = dim.ToText();
    std::erase(part, ' ');
    // What an "x" behind it would make ambiguous stands in parentheses.
    text += dim.constant() || !dim.variable().empty() ? part : "(" + part + ")";
  }
  return text;
}

}  // namespace tilewright::module
