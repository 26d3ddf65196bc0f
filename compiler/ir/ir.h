// The tensor IR: immutable expression and statement nodes, buffers and functions. One IR carries an
// operator from its naive description through scheduling to flat loops ready for code generation;
// `Stage` says how far it has come. Nodes are immutable and shared (`shared_ptr<const Node>`); a
// rewriter returns the same pointer when nothing changed. Thread-safe for reading. Text form:
// ir_text.h. Checks: verify.h. Executable meaning: interp.h.
//
// NUMERIC SEMANTICS. Pinned here and nowhere else; the interpreter is their executable form.
// - Integers are two's complement and wrap at their width. `/` and `%` truncate; floordiv and
//   floormod floor. Division by zero is an error of the program: the interpreter reports it, code
//   generation may assume it away.
// - Index arithmetic is int64 or int32; loops run over [min, min + extent) with extent >= 0.
// - Float operations round to nearest even in their type at each node. `a * b + c` written as Mul
//   and Add *may* be contracted to one fma by the pass `contract_fma`; nothing else changes
//   rounding. Reassociation happens only where a step reorders or marks a reduction: `sub_group`,
//   or `tensor` for sums of floats, which a unit of products may also round towards zero.
// - min/max on floats: if one side is NaN the result is the second operand (as x86 minps/maxps).
// - Casts: float -> int saturates, NaN becomes 0; int -> int wraps; int -> float and
//   float -> float round half to even.
// - mod of floats has the sign of its first operand (C's fmod) and is exact. Shifts are of bits:
//   zeros come in, and a count of the width or more gives 0.
// - widening_mul(a, b) is the exact product, in integers of the same sign and twice the bits.
//   rounding_shift_right(a, b) is floor(a / 2^b + 1/2) of true numbers: halves go up, nothing
//   wraps, and a count of the width or more gives 0. Signed integers only.
// - Select evaluates only the chosen side. And/Or evaluate both.
// - Vectors (lanes > 1) are element-wise. Load/Store with a mask touch only lanes whose mask is
//   true; masked-off lanes of a Load are 0.
// - dot4(c, a, b) has in lane j the wrapping sum of c[j] and the four products a[4j+i] * b[4j+i],
//   8-bit integers widened first; an `a` of four lanes serves every j. A `b` of words, i32xL, has
//   four u8 in each, the first in the lowest bits. With bf16, c is f32 and the products are two.
// - dot_tile(c, a0, a1, b0, b1) adds sums of eight products to two rows of columns. The lanes of c
//   are squares of two rows and two columns: lane 4t + 2i + j is row i of column n = 2t + j. To it
//   are added, wrapping, the products ai[k] * b0[4n + k] and ai[4 + k] * b1[4n + k], k in 0..4.
//
// REDUCTIONS
// - A reduction block runs `init` at the visit where all its reduce variables are at their domain's
//   minimum, then `body` at every visit. Schedules keep that visit the first one of each spatial
//   point (the interpreter reports it otherwise). A point that is computed again (overlapping
//   tiles) starts again with `init`.
// - Combine updates a tuple of elements together. With a = the elements and b = the values that
//   join them, it computes all results from a and b, and only then stores them. A declared combiner
//   is associative (on floats up to rounding); unless it is `ordered` it is commutative, too. Its
//   author guarantees this, and reassociating steps rely on it; the init of the enclosing block is
//   its identity.
//
// ORDER
// - Sequential iterators (IterType::kSequential) carry values: their loops run in order.
// - Iterations of parallel, vectorized, virtual and bound loops are independent: their order must
//   not matter.
//
// THREADS. A bound loop is an axis of a launch.
// - Every loop bound to a thread axis runs over the same threads of the block, each thread its own
//   iteration. Several such loops may follow each other below one block; all threads meet at the
//   end of the outermost one. So the program means the same if its bound loops are read as serial.
// - The pass merge_threads gives each launch one nest of thread loops instead. Barriers exist only
//   there, and threads run concurrently only there: all threads go from one barrier to the next, in
//   any order.
// - Between two barriers no two threads touch the same element unless both read (the interpreter
//   reports a race). Loops and conditions around a barrier are the same for all threads.
//
// ASYNC. `async { S }` issues the stores of S: they read their operands immediately and land
// together with their group.
// - `sync commit` closes a group; `sync wait n` returns when at most the n youngest groups are in
//   flight. An element in flight is neither read nor written.
// - Without a thread nest there is one sequence of groups; inside a thread nest each thread has its
//   own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tilewright::ir {

// ------------------------------------------------------------------------------------------------
// types

enum class TypeCode : uint8_t { kInt, kUInt, kFloat, kBFloat, kBool };

// Scalar or short vector type. Text: i32 u8 f32 bf16 bool, with `x16` for 16 lanes (f32x16).
struct DType {
  TypeCode code = TypeCode::kFloat;
  uint8_t bits = 32;
  uint16_t lanes = 1;

  bool operator==(const DType&) const = default;
  bool is_float() const { return code == TypeCode::kFloat || code == TypeCode::kBFloat; }
  bool is_bool() const { return code == TypeCode::kBool; }
  bool is_int() const { return code == TypeCode::kInt || code == TypeCode::kUInt; }
  bool is_vector() const { return lanes > 1; }
  DType WithLanes(int n) const { return {code, bits, static_cast<uint16_t>(n)}; }
  DType Element() const { return WithLanes(1); }
  int bytes() const { return code == TypeCode::kBool ? 1 : bits / 8; }  // of one lane in memory
};
inline constexpr DType kF32{TypeCode::kFloat, 32, 1};
inline constexpr DType kF64{TypeCode::kFloat, 64, 1};
inline constexpr DType kF16{TypeCode::kFloat, 16, 1};
inline constexpr DType kBF16{TypeCode::kBFloat, 16, 1};
inline constexpr DType kI8{TypeCode::kInt, 8, 1};
inline constexpr DType kI16{TypeCode::kInt, 16, 1};
inline constexpr DType kI32{TypeCode::kInt, 32, 1};
inline constexpr DType kI64{TypeCode::kInt, 64, 1};
inline constexpr DType kU8{TypeCode::kUInt, 8, 1};
inline constexpr DType kU16{TypeCode::kUInt, 16, 1};
inline constexpr DType kU32{TypeCode::kUInt, 32, 1};
inline constexpr DType kU64{TypeCode::kUInt, 64, 1};
inline constexpr DType kBool{TypeCode::kBool, 1, 1};
std::string TypeName(DType type);                    // "f32x16"
bool ParseType(std::string_view text, DType* type);  // false when not a type

// ------------------------------------------------------------------------------------------------
// expressions

enum class ExprKind : uint8_t {
#define TW_EXPR(Kind, text, arity) k##Kind,
#include "compiler/ir/nodes.def"
};
enum class Intrinsic : uint8_t {
#define TW_INTRINSIC(Name, text, arity) k##Name,
#include "compiler/ir/nodes.def"
  kNone
};

struct ExprNode;
struct BufferNode;
struct StmtNode;
struct TupleCombiner;
using Expr = std::shared_ptr<const ExprNode>;
using Var = Expr;  // an Expr whose kind is kVar; compared by address
using Buffer = std::shared_ptr<const BufferNode>;  // compared by address
using Stmt = std::shared_ptr<const StmtNode>;

struct ExprNode {
  ExprKind kind;
  DType dtype;
  std::vector<Expr> args = {};             // operands; for Load the indices
  int64_t int_value = 0;                   // IntImm
  double float_value = 0;                  // FloatImm
  std::string name = {};                   // Var
  Buffer buffer = {};                      // Load
  Expr mask = {};                          // Load, may be null: bool of the same lanes
  Intrinsic intrinsic = Intrinsic::kNone;  // Call
};

// Where a buffer lives: rows of scopes.def. `kLocal` is private to one iteration of the innermost
// parallel or thread loop around its allocation, small, and promoted to registers where all its
// indices are constants.
enum class Scope : uint8_t {
#define TW_SCOPE(Name, text, engine, rank) k##Name,
#include "compiler/ir/scopes.def"
};
enum class StorageRank : uint8_t { kDevice, kBlock, kThread };
std::string_view EngineOf(Scope scope);
StorageRank StorageRankOf(Scope scope);
enum class Role : uint8_t { kInput, kConstant, kOutput, kIntermediate };

// Padding of rows, made by the schedule step storage_align and applied by the pass flatten_buffers:
// the stride of the dimension that has `inside` dimensions inside it is `offset` modulo `factor`,
// in elements. Counted from the innermost dimension, so that passes may put dimensions in front.
inline constexpr int64_t kMaxAlignFactor = 4096;
struct StorageAlign {
  int inside = 1;
  int64_t factor = 1, offset = 0;
};

// Turned rows, made by the schedule step swizzle and applied by the pass flatten_buffers: in row r
// of the dimension that has `inside` dimensions inside it, vector c of the row's n lies in place of
// vector (c + r) mod n, so that neighbours along a column lie at different banks. A vector has
// `vector` elements. Rows that are not a power of two of vectors, at least two, lie as they are.
struct Swizzle {
  int inside = 1;
  int64_t vector = 1;
};

struct BufferNode {
  std::string name;  // unique in a function
  DType dtype;
  std::vector<Expr> shape;  // IntImm, or an expression over the function's size parameters
  Scope scope = Scope::kGlobal;
  Role role = Role::kIntermediate;
  int alignment = 64;                              // bytes
  std::optional<StorageAlign> storage_align = {};  // intermediates only
  std::optional<Swizzle> swizzle = {};             // intermediates only
};
// Returns the elements from one index of dimension `dim` to the next, whose inner dimensions take
// `stride` elements: more than these where the buffer's rows are padded.
int64_t AlignedStride(const BufferNode& buffer, size_t dim, int64_t stride);
Expr AlignedStride(const BufferNode& buffer, size_t dim, const Expr& stride);

// Factories check types (TW_CHECK: a mismatch is a bug of the caller) and fold constants of two
// immediates; nothing else.
Var MakeVar(std::string name, DType dtype = kI64);
Expr Int(int64_t value, DType dtype = kI64);
Expr Bool(bool value);
Expr Float(double value, DType dtype = kF32);
Expr Binary(ExprKind kind, Expr a, Expr b);  // Add .. Ge, And, Or
Expr Not(Expr a);
Expr Cast(DType dtype, Expr a);
Expr Select(Expr cond, Expr then_value, Expr else_value);
Expr Load(Buffer buffer, std::vector<Expr> indices, Expr mask = nullptr);
Expr Ramp(Expr base, Expr stride, int lanes);
Expr Broadcast(Expr value, int lanes);
Expr Call(Intrinsic intrinsic, std::vector<Expr> args);
Expr Zero(DType dtype);
Expr FloorDiv(Expr a, Expr b);
Expr FloorMod(Expr a, Expr b);
Expr Min(Expr a, Expr b);
Expr Max(Expr a, Expr b);
Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator/(Expr a, Expr b);
Expr operator<(Expr a, Expr b);
Expr operator<=(Expr a, Expr b);
Expr operator>=(Expr a, Expr b);
Expr operator&&(Expr a, Expr b);
Expr Eq(Expr a, Expr b);

Buffer MakeBuffer(std::string name, DType dtype, std::vector<Expr> shape,
                  Role role = Role::kIntermediate, Scope scope = Scope::kGlobal);
bool IsInt(const Expr& e, int64_t value);  // IntImm of that value
const int64_t* AsInt(const Expr& e);       // null unless IntImm

// ------------------------------------------------------------------------------------------------
// statements

enum class StmtKind : uint8_t {
#define TW_STMT(Kind) k##Kind,
#include "compiler/ir/nodes.def"
};
enum class ForKind : uint8_t {
#define TW_FOR_KIND(Name, text) k##Name,
#include "compiler/ir/nodes.def"
};
inline bool IsBlockAxis(ForKind k) { return k >= ForKind::kBlockX && k <= ForKind::kBlockZ; }
inline bool IsThreadAxis(ForKind k) { return k >= ForKind::kThreadX && k <= ForKind::kThreadZ; }
inline bool IsBound(ForKind k) { return IsBlockAxis(k) || IsThreadAxis(k); }
// Of a bound kind: x 0, y 1, z 2.
inline int AxisOf(ForKind k) {
  return static_cast<int>(k) -
         static_cast<int>(IsBlockAxis(k) ? ForKind::kBlockX : ForKind::kThreadX);
}
// The iterations may run in any order and at the same time.
inline bool IsConcurrent(ForKind k) { return k != ForKind::kSerial && k != ForKind::kUnrolled; }
enum class SyncKind : uint8_t {
#define TW_SYNC(Name, text) k##Name,
#include "compiler/ir/nodes.def"
};
enum class IterType : uint8_t { kSpatial, kReduce, kSequential, kOpaque };

using AnnotationValue = std::variant<int64_t, std::string>;
using Annotations = std::map<std::string, AnnotationValue>;

struct Range {
  Expr min;
  Expr extent;
};
struct BufferRegion {
  Buffer buffer;
  std::vector<Range> region;  // one per dimension; may name more than is read, never less
};
struct IterVar {
  Var var;
  Range domain;  // min is 0 unless stated; values outside the domain never execute (see predicate)
  IterType type = IterType::kSpatial;
  Expr binding;  // value in terms of the enclosing loops
};

// results[i](lhs, rhs): what becomes of element i of a tuple. A closed function: its expressions
// know only its own variables, so that rewriters of programs need not look inside.
struct TupleCombiner {
  std::vector<Var> lhs, rhs;  // what was combined so far, and what is added to it
  std::vector<Expr> results;
  bool ordered = false;  // associative only: the order of the values must be kept
};

// One struct for all statements keeps rewriters short; only the fields named for a kind are set.
struct StmtNode {
  StmtKind kind;
  // For: var, range, for_kind, annotations, body
  Var var = {};  // also Let
  Range range = {};
  ForKind for_kind = ForKind::kSerial;
  Annotations annotations = {};  // For, Block
  // Block: name, iters, predicate (may be null = true), reads, writes, init (may be null), body
  std::string name = {};  // unique in a function
  std::vector<IterVar> iters = {};
  Expr predicate = {};
  std::vector<BufferRegion> reads = {}, writes = {};
  Stmt init = {};
  // Store: buffer[indices] = value, mask may be null;  Alloc: buffer, body
  Buffer buffer = {};
  std::vector<Expr> indices = {};
  Expr value = {};  // Store, Let, Evaluate
  Expr mask = {};
  // If: condition, body (then), else_body (may be null)
  Expr condition = {};
  Stmt else_body = {};
  Stmt body = {};                      // For, Block, Let, Alloc, If, Async
  SyncKind sync = SyncKind::kBarrier;  // Sync
  int64_t pending = 0;                 // Sync: groups that wait leaves in flight
  std::vector<Stmt> stmts = {};  // Seq; Combine: a Store per element, of the value to be combined
  std::shared_ptr<const TupleCombiner> combiner = {};  // Combine
};

Stmt MakeFor(Var var, Expr min, Expr extent, Stmt body, ForKind kind = ForKind::kSerial,
             Annotations annotations = {});
Stmt MakeStore(Buffer buffer, std::vector<Expr> indices, Expr value, Expr mask = nullptr);
Stmt MakeSeq(std::vector<Stmt> stmts);  // flattens nested Seq; one statement stays itself
Stmt MakeIf(Expr condition, Stmt then_body, Stmt else_body = nullptr);
Stmt MakeLet(Var var, Expr value, Stmt body);
Stmt MakeAlloc(Buffer buffer, Stmt body);
Stmt MakeEvaluate(Expr value);
Stmt MakeAsync(Stmt body);
Stmt MakeSync(SyncKind kind, int64_t pending = 0);
// `stores[i]` names element i of the tuple and the value that joins it.
Stmt MakeCombine(std::shared_ptr<const TupleCombiner> combiner, std::vector<Stmt> stores);
Stmt MakeBlock(StmtNode block);  // kind is set here

// ------------------------------------------------------------------------------------------------
// functions

// kScheduled  blocks under loops; intermediate buffers listed in Function::allocs;
//             multi-dimensional accesses
// kLoops      no blocks; Alloc statements in place; For kinds still annotations of intent;
//             multi-dimensional accesses
// kFlat       vectors explicit (no kVectorized or kUnrolled loops left); every access has exactly
//             one index
enum class Stage : uint8_t { kScheduled, kLoops, kFlat };

struct Function {
  std::string name;              // [a-z0-9_]+
  std::vector<Var> size_params;  // i64, >= 1
  std::vector<Buffer> params;    // inputs, constants, outputs: the order of the C ABI
  std::vector<Buffer> allocs;    // intermediates (stage kScheduled only)
  Stmt body;
  Annotations attrs;
  Stage stage = Stage::kScheduled;
};

}  // namespace tilewright::ir
