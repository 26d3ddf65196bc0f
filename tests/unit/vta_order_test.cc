// The order of a stream: operations follow the product that they wait for; results are cut into
// slices where something waits for their stores, and the first product is cut with its loads.
// tests/unit/vta_codegen_test.cc and tests/unit/matrix_unit_test.cc compare what such streams
// compute.
#include "compiler/targets/vta/vta_order.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/targets/vta/vta_first_product.h"
#include "compiler/targets/vta/vta_slices.h"
#include "deploy/support/strings.h"
#include "tests/support/vta_streams.h"

namespace tilewright::vta {
namespace {

using support::StrCat;
using tests::IsaOf;

constexpr int kAcc = static_cast<int>(Memory::kAcc), kDram = -1;

// A product into `count` sums from `begin`.
VtaEvent Product(int64_t begin, int64_t count) {
  VtaEvent event{.instruction = tests::Once(Opcode::kGemm),
                 .regions = {{kAcc, begin, begin + count, true}}};
  event.instruction.iter_in = count;
  return event;
}

// An operation with a constant, or with an element behind all sums, on `out` rows of `in` sums.
VtaEvent Operation(int64_t begin, int64_t out, int64_t in, bool constant, MicroOpTable* uops) {
  VtaEvent event{.instruction = tests::Once(Opcode::kAlu),
                 .regions = {{kAcc, begin, begin + out * in, true}}};
  Instruction& i = event.instruction;
  const MicroOp uop{.dst = begin, .src = constant ? begin : 2000, .wgt = 0};
  i.uop_begin = uops->At({&uop, 1});
  i.uop_end = i.uop_begin + 1;
  i.iter_out = out;
  i.iter_in = in;
  i.dst_factor_out = in;
  i.dst_factor_in = 1;
  i.use_imm = constant ? 1 : 0;
  i.src_factor_out = constant ? in : 1;
  i.src_factor_in = constant ? 1 : 0;
  if (!constant) event.regions.push_back({kAcc, 2000, 2000 + out, false});
  return event;
}

VtaEvent Store(int64_t begin, int64_t rows, int64_t width) {
  VtaEvent event{.instruction = tests::Move(Opcode::kStore, Memory::kOut, begin, begin, width),
                 .regions = {{kAcc, begin, begin + rows * width, false},
                             {kDram, begin * 16, (begin + rows * width * 2) * 16, true}}};
  event.instruction.y_size = rows;
  event.instruction.x_stride = 2 * width;
  return event;
}

// "G", "A" or "S" and the first sum of each instruction.
std::string Order(const std::vector<VtaEvent>& events) {
  std::vector<std::string> words;
  for (const VtaEvent& event : events) {
    const Opcode op = event.instruction.op;
    words.push_back(StrCat(op == Opcode::kGemm  ? "G"
                           : op == Opcode::kAlu ? "A"
                                                : "S",
                           event.regions.at(0).begin));
  }
  return support::Join(words, " ");
}

TEST(VtaOrderTest, OperationsFollowTheProductThatTheyWaitFor) {
  MicroOpTable uops;
  std::vector<VtaEvent> events = {Product(0, 8),
                                  Product(8, 8),
                                  Operation(0, 1, 8, true, &uops),
                                  Operation(8, 1, 8, true, &uops),
                                  Operation(0, 1, 8, true, &uops),
                                  Operation(8, 1, 8, true, &uops),
                                  Store(0, 1, 8),
                                  Store(8, 1, 8)};
  MoveOperationsForward(&events);
  EXPECT_EQ(Order(events), "G0 A0 A0 S0 G8 A8 A8 S8");
}

TEST(VtaOrderTest, WhatConflictsKeepsItsOrder) {
  MicroOpTable uops;
  // The operation on 4 to 12 needs both products, the store all operations.
  std::vector<VtaEvent> events = {Product(0, 8),   Product(8, 8),
                                  Product(16, 8),  Operation(4, 1, 8, true, &uops),
                                  Store(0, 1, 16), Store(16, 1, 8)};
  MoveOperationsForward(&events);
  EXPECT_EQ(Order(events), "G0 G8 A4 S0 G16 S16");
}

// The sums of all slices, each once and in order; stores have them in DRAM where the whole one had.
void ExpectWhole(const std::vector<VtaEvent>& events, size_t first, int64_t size, int64_t width) {
  int64_t stored = 0;
  for (size_t at = first; at < events.size(); ++at) {
    const Instruction& i = events[at].instruction;
    if (i.op != Opcode::kStore) {
      EXPECT_EQ(events[at].regions[0].begin, stored) << "operations of the next store";
      continue;
    }
    EXPECT_EQ(i.sram_base, stored);
    EXPECT_EQ(i.dram_base, stored / width * width * 2 + stored % width);
    stored += i.y_size * i.x_size;
  }
  EXPECT_EQ(stored, size);
}

TEST(VtaSlicesTest, TheLastStoreIsCut) {
  MicroOpTable uops;
  std::vector<VtaEvent> events = {Product(0, 512), Operation(0, 8, 64, false, &uops),
                                  Operation(0, 1, 512, true, &uops), Store(0, 8, 64)};
  SliceStores(IsaOf({}), &uops, &events);
  // Slices of 32 or 64 sums: half a row, or one.
  EXPECT_GE(events.size(), 1U + 8U * 3U);
  ExpectWhole(events, 1, 512, 64);
  for (const VtaEvent& event : events) {
    const Instruction& i = event.instruction;
    if (i.op != Opcode::kAlu) continue;
    const MicroOp& uop = uops.all().at(static_cast<size_t>(i.uop_begin));
    EXPECT_EQ(uop.dst, event.regions[0].begin);
    EXPECT_EQ(i.iter_out * i.iter_in, event.regions[0].end - event.regions[0].begin);
    EXPECT_EQ(uop.src, i.use_imm != 0 ? uop.dst : 2000 + uop.dst / 64) << "the row's operand";
  }
}

TEST(VtaSlicesTest, StoresThatNothingWaitsForStayWhole) {
  MicroOpTable uops;
  std::vector<VtaEvent> events = {
      Product(0, 512), Operation(0, 1, 512, true, &uops), Store(0, 1, 512), Product(512, 4096),
      Product(0, 512), Operation(0, 1, 512, true, &uops), Store(0, 1, 512)};
  const std::vector<VtaEvent> whole = events;
  SliceStores(IsaOf({}), &uops, &events);
  EXPECT_EQ(Order({events.begin(), events.begin() + 5}), Order({whole.begin(), whole.begin() + 5}));
  EXPECT_GT(events.size(), whole.size());
  // The same, but the next sums at this place wait.
  events = whole;
  events[3] = Product(512, 8);
  SliceStores(IsaOf({}), &uops, &events);
  EXPECT_EQ(events[3].instruction.op, Opcode::kAlu);
  EXPECT_LT(events[2].regions[0].end, 512);
}

TEST(VtaSlicesTest, OperationsOfAnotherFormStayWhole) {
  MicroOpTable uops;
  const VtaEvent product = Product(0, 512), store = Store(0, 1, 512);
  VtaEvent apart = Operation(0, 256, 2, true, &uops);
  apart.instruction.dst_factor_out = 1;  // not one after the other
  apart.instruction.dst_factor_in = 256;
  VtaEvent shifted = Operation(0, 1, 512, true, &uops);  // reads what others of them write
  shifted.regions.push_back({kAcc, 511, 513, false});
  for (const VtaEvent& operation : {apart, shifted}) {
    std::vector<VtaEvent> events = {product, operation, store};
    SliceStores(IsaOf({}), &uops, &events);
    EXPECT_EQ(Order(events), "G0 A0 S0");
  }
}

TEST(VtaSlicesTest, MicroOpsOfSlicesFitTheChip) {
  for (const int64_t room : {2, 4, 8, 16}) {
    MicroOpTable uops;
    std::vector<VtaEvent> events = {Product(0, 512), Operation(0, 8, 64, false, &uops),
                                    Operation(0, 1, 512, true, &uops), Store(0, 8, 64)};
    const Isa isa = IsaOf({.uop = room});
    SliceStores(isa, &uops, &events);
    EXPECT_LE(uops.size(), room);
    ExpectWhole(events, 1, 512, 64);
  }
}

// A load of `rows` rows of `width` elements, which are 3 * width apart in DRAM.
VtaEvent Load(Memory memory, int64_t at, int64_t rows, int64_t width) {
  const int64_t bytes = IsaOf({}).InfoOf(memory).element_bytes;
  VtaEvent event{.instruction = tests::Move(Opcode::kLoad, memory, at, 5, width),
                 .regions = {{static_cast<int>(memory), at, at + rows * width, true},
                             {kDram, 5 * bytes, (5 + rows * width * 3) * bytes, false}}};
  event.instruction.y_size = rows;
  event.instruction.x_stride = 3 * width;
  return event;
}

// Sums of 16 columns of 64, each with weights of its own; the next product has weights behind them.
std::vector<VtaEvent> TwoProducts(MicroOpTable* uops) {
  std::vector<VtaEvent> events = {Load(Memory::kInp, 0, 1, 64), Load(Memory::kWgt, 0, 16, 1),
                                  Load(Memory::kWgt, 16, 16, 1)};
  for (const int64_t place : {0, 1}) {
    const MicroOp uop{.dst = place * 1024, .src = 0, .wgt = place * 16};
    VtaEvent product = Product(place * 1024, 1024);
    product.regions.push_back({static_cast<int>(Memory::kInp), 0, 64, false});
    product.regions.push_back({static_cast<int>(Memory::kWgt), place * 16, place * 16 + 16, false});
    Instruction& i = product.instruction;
    i.uop_begin = uops->At({&uop, 1});
    i.uop_end = i.uop_begin + 1;
    i.iter_out = 16;
    i.iter_in = 64;
    i.dst_factor_out = 64;
    i.dst_factor_in = i.src_factor_in = i.wgt_factor_out = 1;
    events.push_back(product);
  }
  return events;
}

TEST(VtaFirstProductTest, PartsBeginWhenTheirWeightsAreThere) {
  MicroOpTable uops;
  std::vector<VtaEvent> events = TwoProducts(&uops);
  const std::vector<VtaEvent> whole = events;
  SliceFirstProduct(IsaOf({}), &uops, &events);
  ASSERT_GT(events.size(), whole.size());
  // All inputs, then weights of the first product one part after the other, then the others'.
  EXPECT_EQ(events[0].instruction, whole[0].instruction);
  int64_t loaded = 0, multiplied = 0;
  for (const VtaEvent& event : events) {
    const Instruction& i = event.instruction;
    if (i.memory == static_cast<int64_t>(Memory::kWgt) && i.op == Opcode::kLoad &&
        i.sram_base < 16) {
      EXPECT_EQ(i.sram_base, loaded);
      EXPECT_EQ(i.dram_base, 5 + loaded * 3);
      loaded += i.y_size;
    } else if (i.op == Opcode::kGemm && event.regions[0].begin < 1024) {
      const MicroOp& uop = uops.all().at(static_cast<size_t>(i.uop_begin));
      EXPECT_EQ(uop.dst, multiplied * 64);
      EXPECT_EQ(uop.wgt, multiplied);
      EXPECT_EQ(uop.src, 0);
      EXPECT_EQ(event.regions[2].begin, multiplied);
      multiplied += i.iter_out;
      EXPECT_EQ(event.regions[2].end, multiplied);
    }
  }
  EXPECT_EQ(loaded, 16);
  EXPECT_EQ(multiplied, 16);
  EXPECT_EQ(events.back().instruction, whole.back().instruction);
}

// The first product is one step of the sums, and its load brings two: nothing of it is lost.
TEST(VtaFirstProductTest, LaterProductsFindTheirWeights) {
  MicroOpTable uops;
  std::vector<VtaEvent> events = TwoProducts(&uops);
  events[1] = Load(Memory::kWgt, 0, 32, 1);
  events[2] = Load(Memory::kWgt, 32, 16, 1);
  events[3].instruction.wgt_factor_out = 2;
  events[3].regions[2].end = 31;
  events[4].regions[2] = {static_cast<int>(Memory::kWgt), 32, 48, false};
  SliceFirstProduct(IsaOf({}), &uops, &events);
  int64_t loaded = 0, parts = 0;
  for (const VtaEvent& event : events) {
    const Instruction& i = event.instruction;
    if (i.op != Opcode::kLoad || i.memory != static_cast<int64_t>(Memory::kWgt)) continue;
    ++parts;
    loaded += i.y_size * i.x_size;
  }
  EXPECT_GT(parts, 2);
  EXPECT_EQ(loaded, 48);
}

TEST(VtaFirstProductTest, WhatDoesNotPayStaysWhole) {
  // Micro-ops of parts that do not fit the chip; a load with padding, which all parts need.
  for (const bool padded : {false, true}) {
    MicroOpTable uops;
    std::vector<VtaEvent> events = TwoProducts(&uops);
    if (padded) events[1].instruction.y_pad_0 = 1;
    const size_t size = events.size();
    SliceFirstProduct(IsaOf({.uop = padded ? 8192 : 2}), &uops, &events);
    EXPECT_EQ(events.size(), size) << padded;
  }
}

}  // namespace
}  // namespace tilewright::vta
