// The schedule primitive divide: nests of which the last iterations are scheduled apart.
#include <gtest/gtest.h>

#include <string>

#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "tests/support/schedule_case.h"
#include "tests/support/te_programs.h"
#include "tests/unit/lowered_schedule.h"

namespace tilewright::schedule {
namespace {

using tests::DenseReluProgram;
using tests::ExpectGolden;
using tests::ExpectRefused;
using tests::MatmulProgram;

TEST(DivideTest, TheLastIterationsAreNestsOfTheirOwn) {
  ExpectGolden(Scheduled(DenseReluProgram(6, 5, 4), "divide %0 %4 [4]"), "divide");
  // Rows in front in tiles with what follows; sums of the others in parts.
  Scheduled(DenseReluProgram(6, 5, 8),
            "divide %0 %4 [4]; split %0 [?,2]; reverse_compute_at %6 %14; split %10 [2,?];"
            "rfactor %7 %18 axis=first; compute_at %7 %13; bind %12 blockIdx.x; vectorize %1",
            {});
  // Of an output that one block writes.
  Scheduled(MatmulProgram(7, 5, 4), "divide %0 [1]; parallel %0; parallel %5");
  // Sums of one part in parts. Handles of the other stay.
  Scheduled(MatmulProgram(7, 5, 4), "divide %0 [4]; rfactor %3 %2; split %6 [?,2]");
}

TEST(DivideTest, Refusals) {
  const ir::Function dense = DenseReluProgram(6, 5, 4);
  ExpectRefused(dense, "divide %1 [2]", "schedule.divide.form");  // not the outermost
  ExpectRefused(dense, "split %0 [3,2]; divide %7 [2]", "schedule.divide.form");  // a part of it
  ExpectRefused(dense, "parallel %0; divide %0 %4 [2]", "schedule.divide.form");
  ExpectRefused(dense, "compute_at %3 %4; divide %4 [2]", "schedule.divide.form");  // two blocks
  ExpectRefused(MatmulProgram(4, 4, 4), "reorder %2 %0 %1; divide %2 [2]",
                "schedule.divide.form");  // of the sum
  ExpectRefused(dense, "divide %4 %0 [2]", "schedule.divide.not_consecutive");
  ExpectRefused(dense, "divide %0 %0 [2]", "schedule.divide.not_consecutive");
  for (const char* n : {"[6]", "[?]", "[2,2]"})
    ExpectRefused(dense, std::string("divide %0 %4 ") + n, "schedule.divide.extent");
  ExpectRefused(dense, "reorder %5 %4; divide %0 %5 [2]", "schedule.divide.extent");
  ExpectRefused(dense, "divide %0 [2]", "schedule.divide.used_elsewhere");
  ExpectRefused(DenseReluProgram(5, 5, 4), "reorder %5 %4; divide %0 %5 [2]",
                "schedule.divide.not_apart");  // rows of Y, columns of Z
  ExpectRefused(MatmulProgram(7, 5, 4), "divide %0 [4]; divide %5 [2]",
                "schedule.divide.used_elsewhere");  // one output
}

}  // namespace
}  // namespace tilewright::schedule
