// Tensor intrinsics: what an instruction on small tensors computes, declared as a description in
// the tensor IR itself (exact semantics, types included), and how it is matched. A loop nest that
// computes what a description says may carry the annotation `tensor = "NAME"` on its outermost loop
// (`NAME.reset` for the part that only clears the accumulator). The nest keeps its meaning: the
// interpreter, the analyses and the passes see ordinary loops; a back end with the instruction
// replaces the nest as a whole. The verifier holds every marked nest to its description.
//
// The table is immutable and made once; all functions are pure and thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace tilewright::ir {

inline constexpr char kTensorKey[] = "tensor";  // the annotation
inline constexpr char kResetSuffix[] = ".reset";
// The annotation of two loops over the rows and columns of a fragment of sums (scope wmma.acc),
// which the threads that have it share out.
inline constexpr char kFragmentKey[] = "fragment";
// The annotation of two loops over the rows and columns of a tile that is copied from global to
// shared memory, which a unit next to the threads may do for the one that comes there.
inline constexpr char kBulkCopyKey[] = "bulk_copy";

// Who implements an intrinsic, and as what.
enum class TensorOp : uint8_t {
  kDot4,     // processors: products of 32 bits of factors each, summed into lanes of 32 bits
  kDotTile,  // processors: the same for two rows, eight products at a time
  kFmaTile,  // processors: a tile of multiply-adds in registers
  kGemm,     // units of an accelerator, each with its memories
  kAlu,
  kLoad,
  kStore,
  // Threads in step: a product of fragments, and what brings a fragment from memory. The parameters
  // of an operand are in the order of its fragment's rows and columns. The factors of a product are
  // fragments (scopes wmma.a, wmma.b), or it reads them where they are in shared memory.
  kMma,
  kFragmentLoad,
};

// A parameter of the description.
struct TensorOperand {
  std::string name;
  int dense = 1;  // so many last dimensions lie row-major without gaps; the others have any stride
  std::string scope = {};  // the text of the scope it must live in; empty: any
};

struct TensorIntrinsic {
  std::string name;
  TensorOp op;
  // Loops around one store. Size parameters are extents that the program chooses, in
  // 1..max_extent, or (used as a value) integer constants of the program.
  Function update;
  Function reset;                       // without a body where there is no accumulator
  std::vector<TensorOperand> operands;  // of `update`, in order of its parameters; [0] is written
  std::vector<std::string> features;    // cpuid names that the target must have
  int64_t max_extent = 0;
  int threads = 1;  // that have its fragments together
};

// How a row is written: the descriptions are texts, "(parameters) { body }".
struct TensorIntrinsicRow {
  std::string name;
  TensorOp op;
  std::string update, reset = {};
  std::vector<TensorOperand> operands;
  std::vector<std::string> features = {};
  int64_t max_extent = 0;
  int threads = 1;
};
// C[j] += Σ_k A[k] * B[j,k] over groups of four, a row for each number of lanes, whose number ends
// the name: A (of type `a`) is shared by all lanes, or A[j,k] is each one's own. 32 bits hold four
// products of 8-bit numbers exactly; the sum wraps like any i32.
inline constexpr int64_t kDotTerms = 4;
std::vector<TensorIntrinsicRow> Dot4Rows(const std::string& prefix, const std::string& a,
                                         bool shared, const std::vector<std::string>& features);

// The same of pairs of bf16, with sums f32: C[j] += Σ_k A[k] * B[j,k], k in 0..2, A shared by all
// lanes. The description adds the first product, then the second, and rounds each sum. Instructions
// may add them in another order, round sums to a neighbour that is not the nearest, and take
// numbers below the normal ones for 0.
inline constexpr int64_t kPairTerms = 2;
std::vector<TensorIntrinsicRow> PairRows(const std::string& prefix,
                                         const std::vector<std::string>& features);
inline constexpr char kPairDots[] = "generic.dot2_bf16.";  // then the number of lanes

// The same with unsigned factors that are fields of words, four terms of eight bits or eight of
// four: C[j] += Σ_k A[k] * (W[j] >> 8k & 255), or
// C[j] += Σ_p Σ_k A[p,k] * (W[j] >> 4p >> 8k & 15), p in 0..2. A is i8, shared by all lanes.
std::vector<TensorIntrinsicRow> Dot4FieldRows(const std::string& prefix, int bits);
inline constexpr char kNibbleDots[] = "generic.dot4_nibbles.";  // then the number of lanes
inline constexpr char kByteDots[] = "generic.dot4_bytes.";

// Rows of the targets' folders (compiler/targets/intrinsic_table.cc). All others are generic: every
// processor has them.
std::vector<TensorIntrinsicRow> TargetIntrinsicRows();

// Sorted by name; a name with several forms (ranks) has several rows, in order of preference.
std::span<const TensorIntrinsic> TensorIntrinsics();
bool IsTensorIntrinsic(std::string_view name);

// How an operand lies in the program: element (i0, i1, …) of the nest's iteration is at
// buffer[base + Σ strides[l] · i_l], counted in elements of the row-major buffer.
struct TensorOperandMatch {
  Buffer buffer;
  Expr base = {};                     // over variables outside the nest
  std::vector<int64_t> strides = {};  // one per loop of the description
  // Dot products and loads only: the element is read where this holds for all of the nest, and is
  // `otherwise` where it does not (the padding of an image, which is 0 for a load). Null: always
  // read, or, without a buffer, never.
  Expr guard = {};
  Expr otherwise = {};
};
struct TensorMatch {
  const TensorIntrinsic* intrinsic = nullptr;
  bool reset = false;
  std::vector<int64_t> extents = {};              // of the description's loops
  std::vector<TensorOperandMatch> operands = {};  // for a reset only [0]
  std::vector<int64_t> immediates = {};  // values of size parameters that are no extents, in order
};

// Matches loops around one store against the description `name` (with or without `.reset`). The
// loops may stand in any order; commutative operators may have their operands in any order.
// ir.tensor.unknown | ir.tensor.mismatch: expected (the description) …, found …
absl::StatusOr<TensorMatch> MatchTensor(const Stmt& nest, std::string_view name);

// Returns whether a scope is one of fragments.
bool IsFragmentScope(Scope scope);
// Returns whether a statement loads or stores elements of fragments.
bool TouchesFragments(const Stmt& s);
// Returns whether a statement is two serial loops, the first one marked `fragment`, over the rows
// and columns of sums, or over the rows and runs of neighbours in them (a vector): each thread does
// the iterations of the elements that it has. The annotation alone says nothing: any loop may have
// it.
bool IsFragmentMap(const Stmt& s);

// Returns whether a statement is two serial loops, the first one marked `bulk_copy`, around a store
// of an element to shared memory of one from global memory.
bool IsBulkCopy(const Stmt& s);

// The intrinsic's name on a loop (`.reset` included); empty where there is none.
std::string_view TensorNameOf(const StmtNode& loop);
// How many threads have the fragments of a marked nest together; 1 where it has none.
int FragmentThreads(const StmtNode& loop);
// A marked nest, or loops around nothing but one: what an accelerator runs as one instruction.
bool IsTensorNest(const Stmt& s);

}  // namespace tilewright::ir
