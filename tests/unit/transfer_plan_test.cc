// Which tensors move between the host and a device: in loops, behind launches that find sizes, and
// where tensors lie in others. And where they lie on a device.
#include "deploy/runtime/transfer_plan.h"

#include <string>
#include <utility>
#include <vector>

#include "deploy/runtime/device_layout.h"
#include "deploy/support/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tilewright::runtime {
namespace {

using module::Dim;
using module::DType;
using module::Launch;
using module::Manifest;
using module::TensorKind;
using testing::ElementsAre;
using Kind = ExecutionStep::Kind;

constexpr int kHost = 0, kDevice = 1;

// A function whose tensors have 64 bytes each, one behind the other in the arena.
class FunctionText {
 public:
  FunctionText() {
    manifest.code.resize(2);
    manifest.code[kDevice].device = "cpu";
    manifest.functions.emplace_back().name = "main";
  }
  int64_t Tensor(TensorKind kind, int64_t offset = -1, int64_t bytes = 64) {
    const auto id = static_cast<int64_t>(manifest.tensors.size());
    module::Tensor& tensor = manifest.tensors.emplace_back();
    tensor = {.id = id, .name = "t", .dtype = DType::kUInt8, .shape = {bytes}, .kind = kind};
    tensor.bytes = bytes;
    if (kind == TensorKind::kIntermediate) tensor.offset = offset >= 0 ? offset : 64 * id;
    if (kind == TensorKind::kInput) main().inputs.push_back(id);
    if (kind == TensorKind::kOutput) main().outputs.push_back(id);
    return id;
  }
  int64_t Input() { return Tensor(TensorKind::kInput); }
  int64_t Output() { return Tensor(TensorKind::kOutput); }
  int64_t Middle(int64_t offset = -1, int64_t bytes = 64) {
    return Tensor(TensorKind::kIntermediate, offset, bytes);
  }
  // The last tensor is written.
  void Run(int side, std::vector<int64_t> args) {
    Launch& launch = main().launches.emplace_back();
    launch.code = side;
    launch.args = std::move(args);
  }
  module::Function& main() { return manifest.functions[0]; }
  ExecutionPlan Plan() { return PlanExecution(manifest, main(), OnDevice()); }
  static runtime::OnDevice OnDevice() {
    return [](const Launch& launch) { return launch.code == kDevice; };
  }

  Manifest manifest;
};

ExecutionStep Step(Kind kind, int64_t index) { return {kind, static_cast<size_t>(index)}; }
ExecutionStep Host(int64_t launch) { return Step(Kind::kHostLaunch, launch); }
ExecutionStep Device(int64_t launch) { return Step(Kind::kDeviceLaunch, launch); }
ExecutionStep Up(int64_t tensor) { return Step(Kind::kUpload, tensor); }
ExecutionStep Down(int64_t tensor) { return Step(Kind::kDownload, tensor); }
ExecutionStep Find(int64_t launch) { return Step(Kind::kFind, launch); }
ExecutionStep Trips(int64_t loop) { return Step(Kind::kLoop, loop); }

// while (going) { h = f(h, w); going = more(h); }, with the body's launches on these sides.
struct LoopCase {
  explicit LoopCase(int body, int condition) {
    x = f.Input();
    start = f.Input();
    w = f.Middle();
    f.Run(kHost, {x, w});
    going = f.Middle(), h = f.Middle(), next = f.Middle(), more = f.Middle();
    stack = f.Middle(1 << 20, 640);
    f.Run(body, {h, w, next});
    f.Run(condition, {next, more});
    f.main().loops = {{1, 3, {{start, going, more}, {x, h, next}}, {{next, stack}}}};
    y = f.Output();
  }
  FunctionText f;
  int64_t x, start, w, going, h, next, more, stack, y;
};

TEST(TransferPlan, ALoopOnTheHostMovesNothing) {
  LoopCase c(kHost, kHost);
  c.f.Run(kHost, {c.h, c.stack, c.y});
  const ExecutionPlan plan = c.f.Plan();
  EXPECT_THAT(plan.run, ElementsAre(Host(0), Trips(0), Host(1), Host(2), Host(3)));
  EXPECT_THAT(plan.loops, ElementsAre(ExecutionPlan::Loop{.end = 4, .on_device = {false, false}}));
}

// What no trip writes moves once; a state that only the device reads stays there; the condition
// and what is stacked come back in each trip.
TEST(TransferPlan, AStateStaysOnTheDevice) {
  LoopCase c(kDevice, kDevice);
  c.f.Run(kDevice, {c.h, c.y});
  const ExecutionPlan plan = c.f.Plan();
  EXPECT_THAT(plan.run, ElementsAre(Host(0), Up(c.w), Up(c.x), Trips(0), Device(1), Device(2),
                                    Down(c.next), Down(c.more), Device(3), Down(c.y)));
  EXPECT_THAT(plan.loops, ElementsAre(ExecutionPlan::Loop{.end = 8, .on_device = {false, true}}));
  EXPECT_THAT(TensorsOnDevice(c.f.main(), plan, FunctionText::OnDevice()),
              testing::IsSupersetOf({c.x, c.h, c.next, c.w, c.y, c.more}));
}

TEST(TransferPlan, WhatTheOtherSideOfATripReadsMovesInEachTrip) {
  LoopCase c(kHost, kDevice);
  c.f.Run(kDevice, {c.h, c.y});
  EXPECT_THAT(c.f.Plan().run, ElementsAre(Host(0), Trips(0), Host(1), Up(c.next), Device(2),
                                          Down(c.more), Up(c.h), Device(3), Down(c.y)));
}

// The state is on the host, because a launch there reads it; the device needs it in each trip.
TEST(TransferPlan, AStateOfBothSidesIsTheHosts) {
  LoopCase c(kDevice, kHost);
  c.f.main().launches[2].args = {c.h, c.more};
  c.f.Run(kHost, {c.h, c.y});
  EXPECT_THAT(c.f.Plan().run, ElementsAre(Host(0), Up(c.w), Trips(0), Up(c.h), Device(1), Host(2),
                                          Down(c.next), Host(3)));
}

// A loop may have no trip: a copy that only a trip makes is not there behind it.
TEST(TransferPlan, CopiesOfTripsAreNotThereBehindTheLoop) {
  FunctionText f;
  const int64_t x = f.Input(), start = f.Input(), a = f.Middle(), going = f.Middle(),
                more = f.Middle(), h = f.Middle(), y = f.Output();
  f.Run(kDevice, {x, a});
  f.Run(kHost, {start, more});
  // `a` is what the state becomes, though no trip writes or reads it.
  f.main().loops = {{1, 2, {{start, going, more}, {x, h, a}}, {}}};
  f.Run(kHost, {a, h, y});
  EXPECT_THAT(f.Plan().run,
              ElementsAre(Up(x), Device(0), Trips(0), Host(1), Down(a), Down(a), Host(2)));
}

TEST(TransferPlan, LoopsInLoopsBeginAnewInEachTrip) {
  FunctionText f;
  const int64_t x = f.Input(), start = f.Input(), going = f.Middle(), more = f.Middle(),
                inner = f.Middle(), again = f.Middle(), h = f.Middle(), g = f.Middle(),
                next = f.Middle(), y = f.Output();
  f.Run(kDevice, {g, next});     // the inner trip
  f.Run(kHost, {start, again});  // whether there is another
  f.Run(kHost, {start, more});   // of the outer loop
  f.main().loops = {{0, 2, {{start, inner, again}, {h, g, next}}, {}},
                    {0, 3, {{start, going, more}, {x, h, g}}, {}}};
  f.Run(kDevice, {h, y});
  const ExecutionPlan plan = f.Plan();
  EXPECT_THAT(plan.run, ElementsAre(Trips(1), Up(h), Trips(0), Device(0), Host(1), Host(2), Down(g),
                                    Up(h), Device(3), Down(y)));
  EXPECT_EQ(plan.loops[0].end, 5u);
  EXPECT_EQ(plan.loops[1].end, 7u);
  EXPECT_THAT(plan.loops[0].on_device, ElementsAre(false, true));
  EXPECT_THAT(plan.loops[1].on_device, ElementsAre(false, false));
}

TEST(TransferPlan, FoundSizesAreKnownBehindTheirLaunch) {
  FunctionText f;
  f.manifest.size_vars = {{"n", 0, 8}};
  const int64_t x = f.Input(), count = f.Tensor(TensorKind::kOutput, 0, 8), y = f.Output();
  f.main().outputs = {y};
  f.main().checks = {{count, {Dim::Variable("n")}, "NonZero"}};
  f.Run(kDevice, {x, count});
  f.Run(kHost, {x, y});
  EXPECT_THAT(f.Plan().run, ElementsAre(Up(x), Device(0), Down(count), Find(0), Host(1)));
  f.main().launches[0].code = kHost;
  EXPECT_THAT(f.Plan().run, ElementsAre(Host(0), Find(0), Host(1)));
}

TEST(TransferPlan, EntriesOfAStateComeBack) {
  FunctionText f;
  const int64_t x = f.Input(), list = f.Tensor(TensorKind::kState),
                entries = f.Tensor(TensorKind::kState), y = f.Output();
  f.manifest.tensors[static_cast<size_t>(entries)].entries_of = list;
  f.Run(kDevice, {x, entries});
  f.Run(kHost, {list, y});
  EXPECT_THAT(f.Plan().run, ElementsAre(Up(x), Device(0), Down(entries), Host(1)));
}

// The parts of a concat, written on both sides, and a slice of what was written as a whole.
TEST(TransferPlan, WhatWasWrittenMovesWhereTensorsLieInOthers) {
  FunctionText f;
  const int64_t x = f.Input(), a = f.Middle(0), b = f.Middle(64), both = f.Middle(0, 128),
                c = f.Middle(128, 128), part = f.Middle(192), y = f.Output(), z = f.Output();
  f.Run(kHost, {x, a});
  f.Run(kDevice, {x, b});
  f.Run(kDevice, {both, c});
  f.Run(kHost, {part, y});
  f.Run(kHost, {both, z});
  EXPECT_THAT(f.Plan().run, ElementsAre(Host(0), Up(x), Device(1), Up(a), Device(2), Down(c),
                                        Host(3), Down(b), Host(4)));
}

// The place of a dead tensor says nothing about the one that is there now.
TEST(TransferPlan, PlacesAreUsedAgain) {
  FunctionText f;
  const int64_t x = f.Input(), a = f.Middle(0, 128), b = f.Middle(64), y = f.Output();
  f.Run(kDevice, {x, a});
  f.Run(kHost, {x, b});
  f.Run(kHost, {b, y});
  EXPECT_THAT(f.Plan().run, ElementsAre(Up(x), Device(0), Host(1), Host(2)));
}

TEST(DeviceLayout, FixedPlacesStay) {
  FunctionText f;
  const int64_t a = f.Middle(0, 128), part = f.Middle(64), y = f.Output();
  f.Run(kDevice, {a, part, y});
  DeviceLayout layout;
  ASSERT_EQ(AddLayout(f.manifest, f.main(), {a, part, y}, 512, &layout), absl::OkStatus());
  EXPECT_EQ(layout.offsets, (std::map<int64_t, int64_t>{{a, 0}, {part, 64}}));
  EXPECT_EQ(layout.arena_bytes, 128);
}

// Of open sizes: room for what is there only, at multiples of the device's alignment; tensors share
// a place where they do in the module.
TEST(DeviceLayout, OpenPlacesAreTheDevicesOwn) {
  FunctionText f;
  f.manifest.size_vars = {{"n", 1, 1 << 20}};
  const int64_t open = f.Middle(0, 1 << 20), a = f.Middle(0), b = f.Middle(0), c = f.Middle(0),
                x = f.Input(), y = f.Output();
  f.manifest.tensors[static_cast<size_t>(open)].shape = {Dim::Variable("n")};
  f.manifest.tensors[static_cast<size_t>(x)].shape = {Dim::Variable("n")};
  f.manifest.tensors[static_cast<size_t>(a)].after = {open};
  f.manifest.tensors[static_cast<size_t>(b)].after = {a};
  f.manifest.tensors[static_cast<size_t>(c)].after = {open};  // where `a` is
  f.Run(kHost, {x, open, a});
  f.Run(kDevice, {a, b, c, y});
  DeviceLayout layout;
  ASSERT_EQ(AddLayout(f.manifest, f.main(), {a, b, c, y}, 256, &layout), absl::OkStatus());
  EXPECT_EQ(layout.offsets, (std::map<int64_t, int64_t>{{a, 0}, {b, 256}, {c, 0}}));
  EXPECT_EQ(layout.arena_bytes, 256 + 64);
}

TEST(DeviceLayout, SizesThatNobodyBoundsAreRefused) {
  FunctionText f;
  constexpr int64_t kMost = int64_t{1} << 50;
  f.manifest.size_vars = {{"n", 1, kMost}};
  const int64_t x = f.Input(), open = f.Middle(0, 64), a = f.Middle(0), y = f.Output();
  for (const int64_t id : {x, open})
    f.manifest.tensors[static_cast<size_t>(id)].shape = {Dim::Variable("n")};
  f.manifest.tensors[static_cast<size_t>(a)].after = {open};
  f.Run(kDevice, {a, y});
  f.Run(kHost, {open, a});
  DeviceLayout layout;
  const absl::Status status = AddLayout(f.manifest, f.main(), {a, y}, 256, &layout);
  EXPECT_EQ(support::Slug(status), "runtime.load.open_sizes") << status;
}

}  // namespace
}  // namespace tilewright::runtime
