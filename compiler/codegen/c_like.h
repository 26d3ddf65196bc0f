// Kernels as C text: what OpenCL C, CUDA C, HIP and Metal have in common. A dialect says how a
// language writes what differs. Input: functions of stage kFlat whose bound loops are the
// launch's axes (host_device.h makes them). Pure functions over constant tables;
// thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace tilewright::codegen {

// What not every device of a language has: an element type, or functions.
struct OptionalFeature {
  std::string_view prologue = {};  // lines of a text that uses it, behind the first ones
  std::string_view feature = {};   // that a device of such a text needs; empty: all have it
};

// Sub-groups: threads of a group that add up what each of them has.
struct SubGroupWords {
  OptionalFeature feature = {};
  std::string_view lane = {}, lanes = {};  // a thread's place in its sub-group; of how many
  // The function of a value that gives all of them the result; `%` stands for add, min or max.
  // Empty: the language has no sub-groups.
  std::string_view reduce = {};
  int most_bits = 64;  // of a value that the function takes
};

// Products whose factors are in shared memory. Before they read what threads have written there,
// each of these orders its writes and all meet at a barrier.
struct SharedFactorWords {
  std::string_view prologue = {};  // definitions: of texts that use them; empty: there are none
  // The function of an element's number that returns its place in an array: `NAME<elements of a
  // row, rows>(number)`. Runs of `run` elements at multiples of it stay together. Blocks of `rows`
  // by `columns` elements begin at multiples of `align` bytes.
  std::string_view place = {};
  int64_t rows = 1, columns = 1, run = 1, align = 16;
  // Statements in front of products that follow each other, behind them, and behind those for the
  // sums `@` of each.
  std::string_view before = {}, behind = {}, landed = {};
  std::string_view barrier = {};  // orders the writes of threads to shared memory, too
};

// Fragments (fragments.h): matrices in the registers of the threads along x, which are a warp or a
// group of warps. A function for each tensor intrinsic, called like it with `_` for each dot and
// `tw_` in front:
//   product(sums, a, b), product_reset(sums)
//   load<row stride, column stride, bytes, shared>(fragment, first element)
//   product<strides of a, its rows in memory, the same of b>(sums, first elements of a, b) of
//     factors in shared memory
// `bytes` is what each row (or column, where a row's elements are apart) is at a multiple of.
// `shared` says whether the element is in shared memory. A fragment is an array of registers of 32
// bits, its elements shared out evenly.
struct FragmentWords {
  std::string_view prologue = {};  // definitions: of texts that use them
  // A thread's sums are runs of neighbours in rows: the row of run `@`, and its number there.
  // Empty: the language has no fragments.
  std::string_view row = {}, run = {};
  int neighbours = 1;
  SharedFactorWords shared = {};
};

// Copies from global to shared memory that a thread starts and does not wait for.
struct AsyncWords {
  std::string_view prologue = {};  // definitions: of texts that use them
  // The function of two pointers to wide runs, and whether it copies, or fills the first with zeros
  // and reads nothing. Empty: the language has no such copies.
  std::string_view copy = {};
  std::string_view commit = {}, wait = {};  // statements; `@` is how many groups may be in flight
};

// Copies of tiles from global to shared memory that a unit next to the threads does
// (ir::IsBulkCopy, in asynchronous stages), where the elements of the tile are placed for products
// that read them (SharedFactorWords). Who launches the kernel describes each buffer and tile by a
// map, which is a parameter behind the others.
struct BulkCopyWords {
  std::string_view prologue = {};  // definitions: of texts that use them
  // A statement at the beginning of a kernel; `@` is an array of `words` 64-bit numbers of a group.
  std::string_view begin = {};
  int64_t words = 0;
  std::string_view parameter = {};  // the map `@`
  // A line that tells who launches kernel `@` its maps: `#` numbers, `%`. Of each map the number of
  // the buffer among the kernel's, elements of its rows, rows; elements of a box's rows, rows.
  std::string_view maps = {};
  // The function or macro NAME(boxes next to each other, rows of a box, rows of the array, first
  // element, map, first column, first row). Empty: the language has no such copies.
  std::string_view copy = {};
  std::string_view commit = {}, wait = {};  // as those of AsyncWords
  // Bytes of an element; rows of a box, at most; what the bytes of a buffer's row are a multiple
  // of.
  int64_t bytes = 0, most_rows = 0, align = 1;
};

// Shared memory of a group beyond what a text may say the size of: the launch gives it.
struct DynamicSharedWords {
  std::string_view prologue = {};  // definitions: of texts that use it
  int64_t above = 0;               // bytes of a group from which on it is needed; 0: there is none
  std::string_view size = {};      // a line that tells who launches kernel `@`: `#` KiB
  std::string_view memory = {};    // the declaration of all of it, in a kernel
  std::string_view array = {};  // the name of what declares an array: (type, name, count, offset)
};

struct CDialect {
  std::string_view name;                // of error slugs: codegen.<name>.<reason>
  std::string_view suffix;              // of files with the text
  std::string_view prologue;            // first lines of the text
  std::string_view base_prologue = {};  // those that several languages share, behind them
  // Qualifiers, with a blank at the end; of a shared array `@` is what it is at a multiple of.
  std::string_view kernel, global, shared;
  // What stands in front of the type that a pointer is cast to, with a blank at the end. Empty: the
  // types of pointers do not say where they point to.
  std::string_view global_space = {}, shared_space = {};
  std::string_view size_param = "long @";      // of a kernel; `@` is its name, `#` its number
  std::string_view buffer_place = {};          // what follows the name of buffer `#`
  std::string_view thread_params = {};         // last parameters of a kernel
  size_t most_buffers = 0;                     // of a kernel, its sizes included; 0: any number
  std::string_view block_index, thread_index;  // `%` stands for the axis: 0 1 2 or x y z; of any
                                               // integer type
  std::string_view axis_names;                 // what replaces it: "012" or "xyz"
  std::string_view barrier;                    // a statement: orders shared memory
  std::string_view global_barrier;             // orders global memory, too
  // A barrier that orders nothing stands behind a loop with barriers, in front of a condition: for
  // drivers that leave out what is behind it.
  bool barrier_behind_loops = false;
  std::string_view group_size;  // attribute of a kernel; %x %y %z
  // Scalar types in the order i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64 bf16; empty: not supported.
  std::string_view types[12];
  OptionalFeature half = {};
  OptionalFeature bfloat = {};
  OptionalFeature float64 = {};
  std::string_view function_prefix = {};  // of the names of functions of numbers: fma, exp, abs ...
  // Has vectors of 2, 4, 8 and 16 lanes as OpenCL C does: vloadN, vstoreN, arithmetic, builtin
  // functions, convert_, select, components .s0 to .sf.
  bool vectors;
  // Without them: the name of a type `NAME<T, N>` of N neighbours in memory, at a multiple of their
  // size, whose `v[i]` they are. Loads and stores of runs of 4, 8 or 16 bytes use it.
  // Empty: accesses are of one element.
  std::string_view wide = {};
  std::string_view wide_text = {};  // its definition: of texts that use it
  // What computes sum + a0 * b0 + ... of four bytes of each operand, in 32 bits that wrap. With
  // vectors dot(int sum, A a, B b), of vectors of four signed or unsigned bytes; without them
  // dot(int sum, A a0, ... a3, B b0, ... b3). Empty: the language has no dot products.
  std::string_view dot4 = {};
  std::string_view dot4_text =
      {};  // its definition, if the prologue has none: of texts that use it
  SubGroupWords sub_groups = {};
  FragmentWords fragments = {};
  AsyncWords async = {};
  BulkCopyWords bulk = {};
  DynamicSharedWords dynamic_shared = {};
};

struct CText {
  std::string text;
  std::vector<std::string> features;  // of the device that runs it; sorted
};

// One text with a kernel for each function, named like it. The parameters of a kernel are the size
// parameters (64-bit integers), then pointers to the buffers, in the function's order. Indices are
// 32-bit integers in a kernel where that is enough (index_width.h). Private buffers whose indices
// are constant become variables, one for each vector. With `sub_groups`, which the machine says
// (LaunchLimits::sub_groups), sub-groups share out sums (sub_group_sums.h). Same input, same bytes.
absl::StatusOr<CText> EmitC(const std::vector<ir::Function>& kernels, const CDialect& dialect,
                            bool sub_groups);

}  // namespace tilewright::codegen
