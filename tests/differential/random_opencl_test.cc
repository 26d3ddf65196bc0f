// Random flat programs (vectors, masks, casts, integer types, lets, conditions) as OpenCL C on a
// device against the interpreter: the same bits for integers, floats within rounding. Skips without
// a device. A compilation takes a second, so the rounds are few; TILEWRIGHT_ROUNDS makes them more.
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "compiler/codegen/c_like.h"
#include "compiler/ir/ir_text.h"
#include "compiler/transform/host_device.h"
#include "deploy/support/status.h"
#include "tests/support/equivalence.h"
#include "tests/support/random_ir.h"
#include "tests/support/run_plan.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

TEST(RandomOpenClTest, DeviceComputesWhatTheInterpreterDoes) {
  auto device = PlanDevice::Open(TILEWRIGHT_DEVICE_OPENCL);
  if (!device.ok())
    GTEST_SKIP() << "[SKIP] no OpenCL device: " << support::StatusText(device.status());
  uint64_t seed = TestSeed(2718);
  int64_t rounds = TestRounds(16), ran = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    ir::Function f = RandomFlat(seed + static_cast<uint64_t>(i));
    auto plan = transform::SplitHostDevice(f);
    if (!plan.ok()) {  // a global buffer inside of loops
      EXPECT_EQ(support::Slug(plan.status()), "transform.split_host_device.global_alloc");
      continue;
    }
    std::vector<ir::Function> kernels;
    for (const transform::Launch& l : plan->launches) kernels.push_back(l.kernel);
    auto text = codegen::EmitOpenCl(kernels);
    // dot4: OpenCL C has no such instruction before 3.0.
    if (support::Slug(text.status()) == "codegen.opencl.unsupported") continue;
    ASSERT_TRUE(text.ok()) << text.status() << ir::Print(f);
    EquivalenceOptions options;
    options.run_other = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                            std::vector<ir::TensorData*> args) {
      return (*device)->Run(*plan, *text, sizes, args);
    };
    absl::Status same = SameResults(f, f, options);
    ASSERT_TRUE(same.ok()) << "seed " << seed + static_cast<uint64_t>(i) << ": " << same << "\n"
                           << ir::Print(f) << *text;
    ++ran;
  }
  std::cout << ran << " of " << rounds << " programs ran on the device\n";
  EXPECT_GE(ran, rounds / 4);
}

}  // namespace
}  // namespace tilewright::tests
