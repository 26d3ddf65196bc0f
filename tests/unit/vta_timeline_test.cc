// Timelines of the cycle model: golden texts of a small product, events that add up, pictures whose
// size does not grow with the stream.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "deploy/support/strings.h"
#include "tests/support/count_text.h"
#include "tests/support/golden.h"
#include "tests/support/vta_streams.h"
#include "vta/sim/stream_work.h"
#include "vta/sim/timeline.h"

namespace tilewright::vta {
namespace {

using tests::CountOf;
using tests::MatchesGolden;

struct TimedProduct {
  std::vector<Instruction> stream;
  CycleReport report;
};
TimedProduct RunProduct(const tests::ProductShape& shape) {
  const Isa isa = tests::IsaOf(Config{});
  tests::VtaCase c = tests::ThreadedProduct(isa, shape);
  auto report = RunCycles(isa, tests::Encoded(isa, c.stream), CycleTiming{}, 1, &c.dram);
  EXPECT_TRUE(report.ok()) << report.status();
  return {std::move(c.stream), *std::move(report)};
}

TEST(VtaTimelineTest, ASmallProduct) {
  const TimedProduct run = RunProduct({.threads = 2, .tiles = 1, .steps = 2, .rows = 64});
  EXPECT_TRUE(MatchesGolden("vta/timeline.svg", TimelineSvg(run.stream, run.report)));
  EXPECT_TRUE(MatchesGolden("vta/timeline.json", ChromeTrace(run.stream, run.report)));
}

TEST(VtaTimelineTest, EveryInstructionIsAnEvent) {
  const TimedProduct run = RunProduct({.threads = 2, .tiles = 3, .steps = 3, .rows = 8});
  const std::string json = ChromeTrace(run.stream, run.report);
  EXPECT_EQ(CountOf(json, "\"ph\":\"X\""), static_cast<int>(run.stream.size()));
  EXPECT_EQ(CountOf(json, "\"ph\":\"M\""), 3);
  std::array<int64_t, kModules> busy = {};
  for (const std::string& line : support::Split(json, '\n')) {
    const size_t duration = line.find("\"dur\":"), module = line.find("\"tid\":");
    if (duration == std::string::npos) continue;
    busy[static_cast<size_t>(line[module + 6] - '0')] += std::stoll(line.substr(duration + 6));
  }
  EXPECT_EQ(busy, run.report.busy);
}

// Products are counted by the loops that make them; DRAM has a channel for each direction, and the
// busier one bounds the run.
TEST(StreamWorkTest, CountsProductsAndTheBusierChannel) {
  Instruction gemm{.op = Opcode::kGemm};
  gemm.uop_begin = 4, gemm.uop_end = 6, gemm.iter_out = 3, gemm.iter_in = 5;
  Instruction reset = gemm, alu = gemm;
  reset.reset = 1;
  alu.op = Opcode::kAlu;
  const std::vector<Instruction> stream = {reset, gemm, alu, gemm};
  CycleReport report;
  report.read_beats = 10;
  report.write_beats = 3;
  CycleTiming timing;
  timing.bytes_per_beat = 16;
  StreamWork work = WorkOf(stream, report, timing);
  EXPECT_EQ(work.products, 60);
  EXPECT_EQ(work.bytes, 160);
  EXPECT_EQ(work.peak_products, 1);
  EXPECT_EQ(work.peak_bytes, 16);
  report.write_beats = 11;
  work = WorkOf(stream, report, timing);
  EXPECT_EQ(work.bytes, 176);
}

// No run is above its roof.
TEST(StreamWorkTest, BoundsTheCyclesOfARun) {
  for (const int64_t rows : {1, 8, 64}) {
    const TimedProduct run = RunProduct({.threads = 2, .tiles = 3, .steps = 2, .rows = rows});
    const StreamWork work = WorkOf(run.stream, run.report, {});
    EXPECT_EQ(work.products, 2 * 3 * 2 * rows);
    const double least = std::max(static_cast<double>(work.products) / work.peak_products,
                                  static_cast<double>(work.bytes) / work.peak_bytes);
    EXPECT_LE(least, static_cast<double>(run.report.cycles));
    EXPECT_GT(least, 0);
  }
}

TEST(VtaTimelineTest, LongRunsGiveSmallPictures) {
  const TimedProduct run = RunProduct({.threads = 2, .tiles = 100, .steps = 40, .rows = 64});
  EXPECT_GT(run.stream.size(), 20000u);
  // Loads of inputs and of weights take turns within half a pixel. Inputs take longer, so the row
  // is theirs.
  const std::string svg = TimelineSvg(run.stream, run.report);
  EXPECT_LE(CountOf(svg, "#54aeff"), 5);
  EXPECT_LE(CountOf(svg, "<rect"), 500);
}

TEST(VtaTimelineTest, TokensAloneHaveNoBar) {
  Instruction move = tests::Move(Opcode::kLoad, Memory::kUop, 0, 0, 0);
  const std::vector<Instruction> stream = {move, Instruction{.op = Opcode::kFinish}};
  CycleReport report;
  report.cycles = 2;
  report.trace = {{0, Module::kCompute, 0, 1}, {1, Module::kCompute, 1, 2}};
  const int legend = CountOf(TimelineSvg({}, CycleReport{}), "<rect");
  EXPECT_EQ(CountOf(TimelineSvg(stream, report), "<rect"), legend);
}

}  // namespace
}  // namespace tilewright::vta
