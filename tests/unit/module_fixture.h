// Modules for tests, made by the real writer from the kernels of runtime_test_kernels.c. Free
// functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/module/manifest.h"
#include "deploy/module/module_writer.h"

namespace tilewright::test {

inline constexpr int64_t kRows = 4;
inline constexpr int64_t kInner = 8;
inline constexpr int64_t kColumns = 16;

// A module without real code, for tests of the format: one code object of a few bytes and one of
// more than a page, two constants, a prepare launch, a measurement, odd texts.
module::ModuleParts FormatModule();

// y = x · W + b: x is [4, 8]; a prepare launch packs W, a parallel matmul with workspace, a
// parallel addition through an intermediate. W[k][n] = k - 0.25·n, b[n] = 100·n.
module::ModuleParts DenseModule();
// What DenseModule computes for `x`.
std::vector<float> DenseReference(const std::vector<float>& x);

// y = 3 · x · W for x of N rows, 1 <= N <= kMostRows, with W as in DenseModule: a packed weight, a
// matmul with workspace, two additions through intermediates whose places depend on N. With
// `specialised`, the function "four" does it for N = 4, with the same packed weight. What is
// prepared twice gives wrong results.
inline constexpr int64_t kMostRows = 33;
module::ModuleParts OpenRowsModule(bool specialised = true);
// What it computes for `x`.
std::vector<float> OpenRowsReference(const std::vector<float>& x);

// y = 2 · x and z = 2 · w for x of N numbers and w of M, 1 <= N, M <= 9. Next to "main" there are
// "four" for N = 4, "two" for M = 2 and "both" for N = 4, M = 2.
module::ModuleParts TwoSizesModule();
// Keeps rows of kColumns floats: each run appends 2 · x, of N rows (1 <= N <= kMostRows), and gives
// the sums of all columns in y. At most kMostEntries rows fit. Specialised, "one" is for N = 1.
inline constexpr int64_t kMostEntries = 20;
module::ModuleParts ColumnSumsModule(bool specialised = false);

// Copies inputs of every element type to outputs: "x_float32" to "y_float32" and so on, each [2,
// 3].
module::ModuleParts EveryTypeModule();

// One launch of `symbol` with an input "x" and an output "y" of `elements` floats.
module::ModuleParts OneKernelModule(const std::string& symbol, int64_t elements,
                                    std::vector<int64_t> sizes = {});

}  // namespace tilewright::test
