// bind, virtual_thread, software_pipeline: what they accept keeps the meaning (golden text,
// interpreter), what they refuse they refuse by slug and leave the schedule unchanged.
#include <gtest/gtest.h>

#include <string>

#include "compiler/schedule/schedule.h"
#include "tests/support/schedule_case.h"
#include "tests/support/te_programs.h"

namespace tilewright::schedule {
namespace {

using tests::DenseReluProgram;
using tests::ExpectGolden;
using tests::ExpectRefused;
using tests::MatmulProgram;
using tests::Scheduled;
using tests::StencilProgram;

TEST(Bind, MapsLoopsToAxes) {
  // i %0, j %1, k %2, block %3
  ExpectGolden(Scheduled(MatmulProgram(8, 12, 5),
                         "split %0 [?,4]; split %1 [?,4]; reorder %4 %6 %5 %7; bind %4 blockIdx.y; "
                         "bind %6 blockIdx.x; bind %5 threadIdx.y; bind %7 threadIdx.x"),
               "bind");
  // Two nests on one axis, one after the other below the same block.
  Scheduled(
      DenseReluProgram(6, 5, 8),
      "reverse_compute_at %6 %0; bind %0 blockIdx.x; bind %1 threadIdx.x; bind %8 threadIdx.x");
}

TEST(Bind, RefusesByName) {
  ir::Function f = MatmulProgram(8, 12, 5);
  ExpectRefused(f, "unroll %0; bind %0 blockIdx.x", "schedule.bind.not_serial");
  ExpectRefused(f, "bind %0 blockIdx.x; bind %1 blockIdx.x", "schedule.bind.nested");
  ExpectRefused(f, "bind %0 threadIdx.x; bind %1 blockIdx.x", "schedule.bind.nested");
  ExpectRefused(f, "bind %1 blockIdx.x; bind %0 threadIdx.x", "schedule.bind.nested");
  ExpectRefused(f, "parallel %0; bind %1 blockIdx.x", "schedule.bind.nested");
  ExpectRefused(f, "bind %1 blockIdx.x; parallel %0", "schedule.parallel.nested");
  ExpectRefused(f, "reorder %2 %0 %1; bind %1 blockIdx.x; bind %0 threadIdx.x",
                "schedule.bind.nested");
  ExpectRefused(f, "bind %2 threadIdx.x", "schedule.bind.conflict");
  ExpectRefused(f, "bind %0 blockIdx.x; reorder %1 %0", "schedule.reorder.not_serial");
  ExpectRefused(f, "bind %0 blockIdx.x; split %0 [?,2]", "schedule.split.not_serial");
  ExpectRefused(f, "bind %1 threadIdx.x; reorder %0 %2; vectorize %0", "schedule.vectorize.nested");
  ExpectRefused(MatmulProgram(2000, 1, 1), "bind %0 threadIdx.x", "schedule.bind.extent");
}

TEST(VirtualThread, MarksIndependentLoops) {
  ExpectGolden(Scheduled(MatmulProgram(8, 6, 5), "split %0 [2,4]; virtual_thread %4"),
               "virtual_thread");
}

TEST(VirtualThread, RefusesByName) {
  ir::Function f = MatmulProgram(8, 64, 5);
  ExpectRefused(f, "unroll %0; virtual_thread %0", "schedule.virtual_thread.not_serial");
  ExpectRefused(f, "virtual_thread %1", "schedule.virtual_thread.extent");
  ExpectRefused(f, "virtual_thread %2", "schedule.virtual_thread.conflict");
  ExpectRefused(f, "parallel %1; virtual_thread %0", "schedule.virtual_thread.nested");
}

TEST(SoftwarePipeline, MarksTheLoopAndItsNests) {
  // Y: i %0 j %1 k %2, block %3; Z: i %4 j %5, block %6. Z's rows follow Y's in one loop.
  ExpectGolden(Scheduled(DenseReluProgram(6, 5, 8),
                         "reverse_compute_at %6 %0; software_pipeline %0 [1,2] order=consumers"),
               "software_pipeline");
}

TEST(SoftwarePipeline, RefusesByName) {
  ir::Function f = DenseReluProgram(6, 5, 8);
  ExpectRefused(f, "software_pipeline %0 [1,2]", "schedule.software_pipeline.form");
  const std::string rows = "reverse_compute_at %6 %0; ";
  ExpectRefused(f, rows + "software_pipeline %0 [1,2,3]", "schedule.software_pipeline.stages");
  ExpectRefused(f, rows + "software_pipeline %0 [2,3]", "schedule.software_pipeline.stages");
  ExpectRefused(f, rows + "software_pipeline %0 [1,1]", "schedule.software_pipeline.stages");
  ExpectRefused(f, rows + "software_pipeline %0 [1,7]", "schedule.software_pipeline.extent");
  ExpectRefused(f, rows + "software_pipeline %0 [2,1]", "schedule.software_pipeline.dependence");
  ExpectRefused(f, rows + "parallel %0; software_pipeline %0 [1,2]",
                "schedule.software_pipeline.not_serial");
  ExpectRefused(f, rows + "software_pipeline %0 [1,2]; software_pipeline %0 [1,2]",
                "schedule.software_pipeline.twice");
}

}  // namespace
}  // namespace tilewright::schedule
