// How full groups make a unit, by value.
#include "compiler/target/occupancy.h"

#include <gtest/gtest.h>

#include "compiler/target/target.h"

namespace tilewright::target {
namespace {

// A unit of 2048 threads, 64 Ki registers and 96 KiB of shared memory, in warps of 32.
constexpr LaunchLimits kUnit = {.group_threads = 1024,
                                .shared_bytes = 48 << 10,
                                .registers = 255,
                                .usual_threads = 256,
                                .warp = 32,
                                .unit_threads = 2048,
                                .unit_shared_bytes = 96 << 10,
                                .unit_registers = 64 << 10};

TEST(Occupancy, TheScarcestOfThreadsRegistersAndSharedMemoryBoundsIt) {
  struct Row {
    int64_t threads, shared, registers, groups;
    double share;
  };
  const Row rows[] = {
      {256, 0, 0, 8, 1.0},             // threads: 2048 / 256
      {256, 0, 32, 8, 1.0},            // registers: 65536 / (256 * 32) = 8, too
      {256, 0, 64, 4, 0.5},            // registers: 65536 / (256 * 64)
      {256, 24 << 10, 32, 4, 0.5},     // shared memory: 96 / 24
      {256, 48 << 10, 64, 2, 0.25},    // shared memory before registers
      {64, 0, 255, 4, 0.125},          // registers: 65536 / 16320 = 4.01
      {48, 0, 16, 32, 0.75},           // in step 64: 32 groups of 48 threads that work
      {1, 0, 16, 64, 64.0 / 2048},     // a warp of one thread
      {1024, 0, 255, 1, 0.5},          // more registers than there are: one group, which spills
      {1025, 0, 16, 0, 0.0},           // no group of so many threads
      {32, (48 << 10) + 1, 16, 0, 0},  // no group with so much shared memory
      {0, 0, 16, 0, 0.0},
  };
  for (const Row& row : rows) {
    const auto [threads, shared, registers, groups, share] = row;
    EXPECT_EQ(GroupsPerUnit(kUnit, threads, shared, registers), groups)
        << threads << " " << shared << " " << registers;
    EXPECT_DOUBLE_EQ(Occupancy(kUnit, threads, shared, registers), share)
        << threads << " " << shared << " " << registers;
  }
}

// Small groups: a unit has places for 32, whose threads may have twice the registers.
TEST(Occupancy, AUnitHasPlacesForSoManyGroups) {
  LaunchLimits limits = kUnit;
  EXPECT_EQ(FreeRegisters(limits, 32), 32);
  limits.unit_groups = 32;
  EXPECT_EQ(GroupsPerUnit(limits, 32, 0, 16), 32);
  EXPECT_EQ(Occupancy(limits, 32, 0, 64), 0.5);
  EXPECT_EQ(FreeRegisters(limits, 20), 64);
  EXPECT_EQ(FreeRegisters(limits, 64), 32);
  EXPECT_EQ(FreeRegisters(limits, 2000), 0);
  EXPECT_EQ(FreeRegisters(ParseTarget("opencl")->machine.launch, 16), 0);
}

// Where threads run one after the other, one is as good as many.
TEST(Occupancy, AUnitWithoutThreadsInFlightIsAlwaysFull) {
  const LaunchLimits& limits = ParseTarget("opencl")->machine.launch;
  for (int64_t threads = 1; threads <= limits.group_threads; threads *= 4) {
    EXPECT_EQ(GroupsPerUnit(limits, threads, 0, 16), 1);
    EXPECT_EQ(Occupancy(limits, threads, limits.shared_bytes, limits.registers), 1);
  }
  EXPECT_EQ(Occupancy(limits, limits.group_threads + 1, 0, 16), 0);
  EXPECT_EQ(Occupancy(limits, 1, limits.shared_bytes + 1, 16), 0);
}

TEST(Occupancy, ATileNeedsItsSumsItsOperandsAndAddresses) {
  EXPECT_EQ(TileRegisters(64, 16), 96);
  EXPECT_EQ(TileRegisters(1, 2), 19);
}

}  // namespace
}  // namespace tilewright::target
