// The manifest: describes a module, as plain values with a canonical JSON text (sorted keys, no
// spaces). Printing what was parsed gives the same text. A manifest that parses is valid: ids,
// ranges, sizes and references are checked, so users of it do not check again. Hostile text gives
// an error, never a crash. Values are owned; const use is thread-safe.
#ifndef DEPLOY_MODULE_MANIFEST_H_
#define DEPLOY_MODULE_MANIFEST_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/module/dtype.h"
#include "deploy/support/dim.h"

namespace tilewright::module {

// We raise these when readers of the previous version would misread a manifest. A module whose
// sizes are all fixed has the first, so that older readers still read it. One with size variables
// has the second, one with state the third. The fourth has variables some of whose values are none
// of the module, the fifth several functions with state. The sixth has sizes that a run finds, the
// seventh loops, the eighth loops and checks of sizes, which may be those of each trip. The ninth
// has tensors at smaller multiples than kTensorAlignment.
inline constexpr int64_t kManifestFormatVersion = 1;
inline constexpr int64_t kOpenSizesFormatVersion = 2;
inline constexpr int64_t kStateFormatVersion = 3;
inline constexpr int64_t kEqualSizesFormatVersion = 4;
inline constexpr int64_t kSharedStateFormatVersion = 5;
inline constexpr int64_t kFoundSizesFormatVersion = 6;
inline constexpr int64_t kLoopsFormatVersion = 7;
inline constexpr int64_t kLoopChecksFormatVersion = 8;
inline constexpr int64_t kAlignmentFormatVersion = 9;
inline constexpr int64_t kNewestFormatVersion = kAlignmentFormatVersion;

// No tensor, arena or section is larger; keeps sums of sizes far from overflow.
inline constexpr int64_t kMaxBytes = int64_t{1} << 46;

// Offsets of tensors in the arena and of constants in their section are multiples of the first, or
// of the alignment that the module says: a power of two, not less than the second.
inline constexpr int64_t kTensorAlignment = 64;
inline constexpr int64_t kLeastTensorAlignment = 16;

// A dimension: a number, or an expression over the module's size variables.
using support::Dim;
using support::Sizes;

enum class TensorKind {
  kInput,         // bound by the caller; offset is 0
  kOutput,        // written by a launch, read by the caller (and by later launches); offset is 0
  kConstant,      // in the constants section at `offset`
  kIntermediate,  // in the arena at `offset`, dead between runs
  kPrepared,      // in the arena at `offset`, written by a prepare launch, kept between runs:
                  // overlaps no intermediate
  kState,         // in a list of the session, kept between runs (State); offset is 0
};
std::string_view TensorKindName(TensorKind kind);

struct Tensor {
  int64_t id = 0;  // equals the tensor's position in Manifest::tensors
  std::string
      name;  // inputs and outputs: the model's names, unique among their kind; else may be ""
  DType dtype = DType::kFloat32;
  std::vector<Dim> shape;  // logical row-major shape; [] is a scalar
  TensorKind kind = TensorKind::kIntermediate;
  int64_t offset = 0;
  // Product of the shape × element size. Where the shape is open: at the maxima of the variables,
  // at most kMaxBytes.
  int64_t bytes = 0;
  // Of an intermediate in a module of open sizes: it begins in the arena at the largest end of
  // these intermediates, each rounded up to the module's alignment. Its offset is 0 then. If empty,
  // it begins at `offset`.
  std::vector<int64_t> after = {};
  // Of kind kState: the list that these are the new entries of. Launches write them, behind the
  // entries that the list had before the run. Without it, the tensor is a whole list, new entries
  // included; launches read it.
  std::optional<int64_t> entries_of = {};
  // Of kind kState, in a function for some sizes: the list of "main" that this one is, in the shape
  // that it has at these sizes.
  std::optional<int64_t> same_list = {};
  bool operator==(const Tensor&) const = default;

  // Whether it is a list of "main", which has memory of its own.
  bool is_own_list() const { return kind == TensorKind::kState && !entries_of && !same_list; }
};

// A size variable that dimensions may name, with the range that the module was compiled for. It
// is alone a dimension of an input of "main", from which a call binds it, or the run finds it
// (found_vars.h). The prepared tensors of a
// module with size variables have a region of their own: their offsets count from its start.
struct SizeVar {
  std::string name;
  int64_t min = 1;
  int64_t max = 1;
  bool operator==(const SizeVar&) const = default;
};

// What a session keeps from one run to the next: lists that each run makes longer, such as the keys
// and values of a decoder. The first dimension of their tensors counts entries. An entry has fixed
// sizes but for variables that stay the same until the state is reset, and a multiple of
// kTensorAlignment bytes.
struct State {
  // A size variable that no input binds: the number of entries before the run. Its minimum is 0,
  // its maximum is how many entries fit.
  std::string length;
  Dim next;  // the number after the run: `length` and the new entries
  bool operator==(const State&) const = default;
};

// Two expressions over size variables that an operator needs to be equal, as the heights of two
// images that it joins. Kernels read outside of their tensors where they are not: such sizes are no
// sizes of the module.
struct SizeEquality {
  Dim left, right;
  std::string what;  // for people: the operator's node
  bool operator==(const SizeEquality&) const = default;
};

// One call of a kernel entry. Launches of a function run in order.
struct Launch {
  std::string symbol;         // exported symbol in the code object: tw_kernel_<name>
  int64_t code = 0;           // index into Manifest::code
  std::vector<int64_t> args;  // tensor ids in the kernel's buffer order
  int64_t num_outputs = 1;    // the last num_outputs args are written, the others only read
  std::vector<Dim> sizes;     // values of the kernel's size parameters
  Dim workspace_bytes = 0;
  std::string name;          // what to show people ("conv2d+relu"); may be ""
  std::string task;          // task hash; "" if the launch belongs to no tuned task
  std::string steps;         // schedule text, lines separated by '\n'; "" if there is none
  std::string program_hash;  // hash of the final program
  double flops = 0;          // floating-point (or integer) operations of one call; 0 if unknown
  std::optional<Dim> open_flops = {};  // where they depend on size variables; `flops` is 0 then
  // Groups of the launch and threads of a group, along x y z, for devices whose kernels do not hold
  // all their loops (OpenCL). Both are set or neither; zeros mean one call for everything (CPU).
  std::array<int64_t, 3> grid{};
  std::array<int64_t, 3> group{};
  bool has_grid() const { return grid[0] > 0; }
  bool operator==(const Launch&) const = default;
};

// Sizes that only a run settles: what launches write there must be these, numbers that the model
// states or expressions. Else the results of the run have a shape that they should not have. A
// variable that no input binds is what the run finds there.
struct SizeCheck {
  int64_t tensor = 0;         // of kind output, i64, one dimension; no output of the function
  std::vector<Dim> expected;  // for each element
  std::string what;           // for people: "Reshape \"flat\""
  bool operator==(const SizeCheck&) const = default;
};

// Launches that run again and again, as long as a bool holds.
struct Loop {
  int64_t first = 0, end = 0;  // launches [first, end); there may be none
  // What a trip leaves to the next one. `value` is `init` in the first trip, then what was `next`
  // at the end of the trip before. All three have one type and one size. The first is the bool.
  struct Carried {
    int64_t init = 0, value = 0, next = 0;
    bool operator==(const Carried&) const = default;
  };
  std::vector<Carried> carried;
  // What the trips made: `whole` has one `part` per trip along a first dimension of its own. A run
  // with more trips has no result.
  struct Stacked {
    int64_t part = 0, whole = 0;
    bool operator==(const Stacked&) const = default;
  };
  std::vector<Stacked> stacked;
  bool operator==(const Loop&) const = default;
};

struct Function {
  std::string name;              // the function to run by default is "main"
  std::vector<int64_t> inputs;   // tensor ids in the graph's order
  std::vector<int64_t> outputs;  // tensor ids in the graph's order
  std::vector<Launch> prepare;   // run before the first call, untimed; write prepared tensors
  std::vector<Launch> launches;
  std::vector<SizeCheck> checks = {};
  // By their ends; one in another one comes before that. A device may run launches of them.
  std::vector<Loop> loops = {};
  // Of a specialisation: the values of size variables at which it replaces "main", of some or of
  // all. It has main's inputs and outputs, by name and type, at these sizes. Its sizes depend on
  // the other variables only.
  Sizes at = {};
  bool operator==(const Function&) const = default;
};

struct CodeObject {
  std::string format;  // "elf-x86_64": a shared object without dependencies but libc and libm
  int64_t abi_version = 1;
  int64_t size = 0;
  std::string digest;  // SHA-256, 64 lower-case hex digits
  // Kind of the device whose plug-in runs its launches ("opencl"); "": the processor itself.
  std::string device = {};
  // What the device must have, as its plug-in calls it ("cl_khr_fp16"); sorted, unique. What the
  // processor must have is in Manifest::cpu_features.
  std::vector<std::string> features = {};
  bool operator==(const CodeObject&) const = default;
};

// How the values of a generated input are drawn; deploy/runtime/input_gen.h defines the numbers.
struct Distribution {
  enum class Kind {
    kUniform,   // reals in [a, b)
    kNormal,    // mean a, standard deviation b
    kIntRange,  // integers in [a, b], both included
  };
  Kind kind = Kind::kUniform;
  double a = -1;
  double b = 1;
  bool operator==(const Distribution&) const = default;
};

struct InputSpec {
  int64_t tensor = 0;  // id of an input of "main"
  uint64_t seed = 0;
  Distribution distribution;
  // Cold: neither this input nor what prepare launches made of it is in a cache when the kernel is
  // called. They are removed from the caches before each run that counts.
  bool cold = false;
  bool operator==(const InputSpec&) const = default;
};

// |actual − expected| ≤ abs + rel·|expected| for every element.
struct Tolerance {
  double abs = 0;
  double rel = 0;
  bool operator==(const Tolerance&) const = default;
};

// What a candidate module needs to be measured and checked anywhere.
struct Measurement {
  std::vector<InputSpec> inputs;  // exactly one per input of "main"
  // SHA-256 of the expected outputs: the outputs of "main" in order, each as its raw little-endian
  // row-major bytes, nothing between. "" if the result is not checked (a pure timing).
  std::string expected_digest;
  Tolerance tolerance;
  double flops = 0;  // operations of one run of "main"
  bool operator==(const Measurement&) const = default;
};

struct Manifest {
  int64_t format_version = kManifestFormatVersion;
  std::string name;
  std::map<std::string, std::string> producer;  // "tilewright", "toolchain", …: versions
  std::string target;                           // target string the code was compiled for
  std::vector<std::string> cpu_features;        // needed, LLVM spelling ("avx512f"); sorted, unique
  std::vector<Tensor> tensors;
  std::vector<SizeVar> size_vars;
  std::optional<State> state = {};
  std::vector<SizeEquality> equal_sizes;
  // Of intermediates and prepared tensors; in a module of open sizes of the intermediates of the
  // function that needs most, at the maxima of the variables, at most kMaxBytes.
  int64_t arena_bytes = 0;
  int64_t alignment = kTensorAlignment;  // of tensors in it, and of constants
  int64_t workspace_bytes = 0;           // the largest need of any launch, in the same way
  int64_t constants_bytes = 0;
  std::string constants_digest;  // SHA-256; "" when there are none
  std::vector<Function> functions;
  std::vector<CodeObject> code;
  std::optional<Measurement> measurement;
  std::map<std::string, std::string>
      provenance;  // "job", "model_digest", "log_records", what LaunchNamesKey says, …
  bool operator==(const Manifest&) const = default;

  const Function* FindFunction(std::string_view function_name) const;
  // The oldest format that has all of this.
  int64_t NeededFormatVersion() const;
  // Whether sizes depend on variables.
  bool open_sizes() const { return !size_vars.empty(); }
  // Position of the variable that the state binds, in size_vars; -1 without a state.
  int StateVariable() const;
  // The list of "main" that a tensor of kind kState is or adds to. REQUIRES: a valid manifest.
  int64_t ListOf(const Tensor& tensor) const;
};

// Checks everything that readers rely on. INVALID_ARGUMENT `module.manifest.<reason>` on the first
// violation; the text names the place ("tensors[3].bytes").
absl::Status ValidateManifest(const Manifest& manifest);

// Returns the canonical JSON. INVALID_ARGUMENT if the manifest is not valid (ValidateManifest) or
// holds text that is not UTF-8.
absl::StatusOr<std::string> ManifestToJson(const Manifest& manifest);

// Parses JSON. DATA_LOSS `module.manifest.<reason>` if it is not a valid manifest: broken JSON,
// unknown or missing keys, wrong types, values out of range. UNIMPLEMENTED
// `module.manifest.version` if the manifest has a later format.
absl::StatusOr<Manifest> ManifestFromJson(std::string_view json);

// Returns how many elements a shape has; nullopt if it is open or the number exceeds int64.
std::optional<int64_t> NumElements(const std::vector<Dim>& shape);

// Whether a dimension is an expression.
bool IsOpen(const std::vector<Dim>& shape);

// Returns the shape as numbers. REQUIRES: it is not open.
std::vector<int64_t> FixedExtents(const std::vector<Dim>& shape);

// Returns the shape as text: "1x3x224x224", "Nx3x((H+1)/2)"; "scalar" for a scalar.
std::string ShapeText(const std::vector<Dim>& shape);

// The threads=N of a target's text, at most 1024; 1 where it names none.
int TargetThreads(std::string_view target);

}  // namespace tilewright::module

#endif  // DEPLOY_MODULE_MANIFEST_H_
