// Kernels as SPIR-V modules: what is where, what a module asks of its device, and what the
// plug-in reads of it. Every module is validated by the tools of SPIR-V's makers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <spirv/unified1/spirv.hpp11>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/ir/ir_text.h"
#include "compiler/targets/vulkan/loop_cost.h"
#include "compiler/targets/vulkan/spirv_kernel.h"
#include "compiler/targets/vulkan/vulkan_codegen.h"
#include "deploy/module/module_file.h"
#include "deploy/runtime/spirv_abi.h"
#include "deploy/runtime/vulkan_kernel.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/spirv_check.h"

namespace tilewright::vulkan {
namespace {

using support::StrCat;

KernelModule Emitted(const std::string& text, const SpirvOptions& options = {}) {
  const auto function = ir::ParseFunction(text);
  EXPECT_TRUE(function.ok()) << function.status();
  const auto module = EmitKernel(*function, options);
  EXPECT_TRUE(module.ok()) << module.status();
  if (!module.ok()) return {};
  const auto code = EmitSpirv({*function}, options);
  const absl::Status valid = tests::ValidateSpirv(code->bytes);
  EXPECT_TRUE(valid.ok()) << valid;
  return *module;
}

absl::Status Refusal(const std::string& text) {
  const auto function = ir::ParseFunction(text);
  EXPECT_TRUE(function.ok()) << function.status();
  return EmitKernel(*function).status();
}

// The operations of a module in their order.
std::vector<spv::Op> OpsOf(const KernelModule& module) {
  std::vector<spv::Op> ops;
  for (size_t at = 5; at < module.words.size(); at += module.words[at] >> 16)
    ops.push_back(static_cast<spv::Op>(module.words[at] & 0xffff));
  return ops;
}
int64_t Count(const std::vector<spv::Op>& ops, spv::Op op) {
  return std::count(ops.begin(), ops.end(), op);
}
size_t First(const std::vector<spv::Op>& ops, spv::Op op) {
  return static_cast<size_t>(std::find(ops.begin(), ops.end(), op) - ops.begin());
}

// A kernel of 64 threads over X and Y; L is each thread's own.
std::string InThreads(const std::string& body, const std::string& type = "f32") {
  return StrCat("fn f(X: ", type, "[256] input, Y: ", type, "[256] output) stage=flat {\n",
                "  for t in 0..64 threadIdx.x {\n    alloc L: ", type, "[4] scope=local {\n", body,
                "\n    }\n  }\n}\n");
}

TEST(Spirv, WhatALoopDoesAlikeIsDoneBeforeIt) {
  const auto ops = OpsOf(Emitted(InThreads(R"(
      L[0] = 0.0f32;
      for k in 0..64 {
        L[0] = L[0] + X[t * 3 + k];
      }
      Y[t] = L[0];)")));
  EXPECT_EQ(Count(ops, spv::Op::OpIMul), 1);
  EXPECT_LT(First(ops, spv::Op::OpIMul), First(ops, spv::Op::OpLoopMerge));
}

TEST(Spirv, WhatWasComputedIsNotComputedAgain) {
  const auto ops = OpsOf(Emitted(InThreads(R"(
      L[0] = X[t * 3] * X[t * 3];
      L[1] = X[t * 3] * X[t * 3] + 1.0f32;
      Y[t] = L[0] + L[1];)")));
  EXPECT_EQ(Count(ops, spv::Op::OpIMul), 1);
  EXPECT_EQ(Count(ops, spv::Op::OpFMul), 1);
}

// A value of memory is old after a store to it, after a barrier, and in the next iteration.
TEST(Spirv, WhatMayHaveChangedIsLoadedAgain) {
  const auto loads = [](const std::string& body) {
    return Count(OpsOf(Emitted(InThreads(body))), spv::Op::OpLoad);
  };
  const int64_t once = loads("Y[t] = X[t]; L[0] = 1.0f32; Y[t + 64] = L[0] + L[0];");
  EXPECT_EQ(loads("Y[t] = X[t]; L[0] = 1.0f32; Y[t + 64] = L[0]; L[0] = 2.0f32; Y[t] = L[0];"),
            once + 1);
  EXPECT_EQ(loads("Y[t] = X[t]; L[0] = 1.0f32; Y[t + 64] = L[0]; L[1] = 2.0f32; Y[t] = L[0];"),
            once);
  const int64_t looped = loads(
      "Y[t] = X[t]; L[0] = 1.0f32; Y[t + 64] = L[0];\n"
      "for k in 0..4 { L[0] = L[0] + 1.0f32; }\nY[t] = L[0];");
  EXPECT_EQ(looped, once + 2);
}

TEST(Spirv, GuardedLoadsNeedNoBranch) {
  const auto ops = OpsOf(Emitted(InThreads("Y[t] = select(t < 9, X[t + 192], 0.0f32);")));
  EXPECT_EQ(Count(ops, spv::Op::OpBranchConditional), 0);
  EXPECT_EQ(Count(ops, spv::Op::OpSelect), 2) << "the index and the value";
}

TEST(Spirv, LanesOfOneMaskAreOneBranch) {
  const auto ops = OpsOf(Emitted(
      InThreads("Y[ramp(t * 3, 1, 4)] masked(broadcast(t < 60, 4)) = X[ramp(t * 3, 1, 4)];")));
  EXPECT_EQ(Count(ops, spv::Op::OpBranchConditional), 1);
  EXPECT_EQ(Count(ops, spv::Op::OpStore), 4);
}

// Four elements are one access where they are known to begin at a multiple of four.
TEST(Spirv, RunsAreWideAccesses) {
  struct Found {
    int64_t loads, stores, branches;
    bool operator==(const Found&) const = default;
  };
  const auto accesses = [](const std::string& body, const std::string& type = "f32") {
    const auto ops = OpsOf(Emitted(InThreads(body, type)));
    return Found{Count(ops, spv::Op::OpLoad) - 1, Count(ops, spv::Op::OpStore),
                 Count(ops, spv::Op::OpBranchConditional)};
  };
  EXPECT_EQ(accesses("Y[ramp(t * 4, 1, 4)] = X[ramp(t * 4, 1, 4)];"), Found(1, 1, 0));
  EXPECT_EQ(accesses("Y[ramp(t * 4, 1, 4)] = X[ramp(t * 4, 1, 4)];", "i8"), Found(1, 1, 0));
  EXPECT_EQ(accesses("Y[ramp(t * 8, 1, 8)] = X[ramp(t * 8, 1, 8)];"), Found(2, 2, 0));
  EXPECT_EQ(accesses("Y[ramp(t * 2, 1, 4)] = X[ramp(t * 4, 1, 4)];"), Found(1, 4, 0));
  EXPECT_EQ(accesses("Y[ramp(t * 4, 1, 4)] = X[ramp(t, 4, 4)];"), Found(4, 1, 0));
  // Behind one condition for all lanes, and behind one for each.
  EXPECT_EQ(accesses("Y[ramp(t * 4, 1, 4)] masked(broadcast(t < 9, 4)) = X[ramp(t * 4, 1, 4)] "
                     "masked(broadcast(t < 9, 4));"),
            Found(1, 1, 1));
  EXPECT_EQ(accesses("Y[ramp(t * 4, 1, 4)] = X[ramp(t * 4, 1, 4)] masked(ramp(t, 1, 4) < "
                     "broadcast(9, 4));"),
            Found(4, 1, 0));
}

// What was stored one by one is loaded again by a wide access, and the other way round.
TEST(Spirv, WideAccessesSeeStoresOfOneElement) {
  const auto ops = OpsOf(Emitted(InThreads(
      "Y[ramp(t * 4, 1, 4)] = X[ramp(t * 4, 1, 4)];\nL[0] = Y[t * 4];\nY[t * 4 + 1] = 2.0f32;\n"
      "Y[ramp(t * 4, 1, 4)] = Y[ramp(t * 4, 1, 4)] + broadcast(L[0], 4);")));
  EXPECT_EQ(Count(ops, spv::Op::OpLoad), 5) << "thread, X, Y[t * 4], L, Y";
}

TEST(Spirv, BarriersOrderGlobalMemoryWhereItIsShared) {
  constexpr char kReversed[] =
      R"(fn f(X: f32[64] input, T: f32[64] output, Y: f32[64] output) stage=flat {
  for t in 0..64 threadIdx.x {
    T[t] = X[t];
    sync barrier;
    Y[t] = T[63 - t];
  }
}
)";
  const KernelModule module = Emitted(kReversed);
  const auto decorated = [&](spv::Decoration wanted) {
    int members = 0;
    for (size_t at = 5; at < module.words.size(); at += module.words[at] >> 16) {
      members += (module.words[at] & 0xffff) == static_cast<uint32_t>(spv::Op::OpMemberDecorate) &&
                 module.words[at + 3] == static_cast<uint32_t>(wanted);
    }
    return members;
  };
  EXPECT_EQ(decorated(spv::Decoration::Coherent), 1) << "T";
  EXPECT_EQ(decorated(spv::Decoration::NonWritable), 1) << "X";
}

TEST(Spirv, AModuleAsksForTheTypesItHas) {
  const auto features = [](const std::string& type, const std::string& body) {
    return Emitted(InThreads(body, type)).features;
  };
  using Features = std::vector<std::string>;
  EXPECT_EQ(features("f32", "Y[t] = X[t];"), Features());
  EXPECT_EQ(features("i32", "Y[t] = X[t];"), Features());
  EXPECT_EQ(features("i8", "Y[t] = X[t];"), (Features{"shaderInt8", "storageBuffer8BitAccess"}));
  EXPECT_EQ(features("bool", "Y[t] = X[t];"), (Features{"shaderInt8", "storageBuffer8BitAccess"}));
  EXPECT_EQ(features("f16", "Y[t] = X[t];"),
            (Features{"shaderFloat16", "storageBuffer16BitAccess"}));
  EXPECT_EQ(
      features("f16", "Y[t] = f16(f32(X[t]));"),
      (Features{"shaderFloat16", "shaderRoundingModeRTEFloat16", "storageBuffer16BitAccess"}));
  EXPECT_EQ(features("f64", "Y[t] = X[t];"), (Features{"shaderFloat64"}));
  EXPECT_EQ(features("i64", "Y[t] = X[t];"), (Features{"shaderInt64"}));
}

// The same loops as in other languages (sub_group_sums.h), of types that Vulkan 1.1 adds up.
TEST(Spirv, SubGroupsShareOutSums) {
  const auto shares = [](const std::string& type, const std::string& loop) {
    const KernelModule module = Emitted(
        InThreads(StrCat("L[0] = X[0];\n", loop, "\nY[t] = L[0];"), type), {.sub_groups = true});
    const auto ops = OpsOf(module);
    const bool asks =
        std::count(module.features.begin(), module.features.end(), "subgroupArithmetic") == 1;
    const int64_t found =
        Count(ops, spv::Op::OpGroupNonUniformFAdd) + Count(ops, spv::Op::OpGroupNonUniformFMax) +
        Count(ops, spv::Op::OpGroupNonUniformSMin) + Count(ops, spv::Op::OpGroupNonUniformUMin) +
        std::max<int64_t>(Count(ops, spv::Op::OpGroupNonUniformIAdd) - 2, 0);
    EXPECT_EQ(asks, found > 0);
    EXPECT_LE(Count(ops, spv::Op::OpGroupNonUniformIAdd), 3) << "counted once";
    return found;
  };
  const std::string sum = "for k in 0..64 @{sub_group=1} { L[0] = L[0] + X[k]; }";
  EXPECT_EQ(shares("f32", sum), 1);
  EXPECT_EQ(shares("i32", sum), 1);
  EXPECT_EQ(shares("f64", sum), 1);
  EXPECT_EQ(shares("f16", sum), 0) << "a feature of its own";
  EXPECT_EQ(shares("f32", sum + "\n" + sum), 2);
  EXPECT_EQ(shares("f32", "for k in 0..64 @{sub_group=1} { L[0] = max(X[k], L[0]); }"), 1);
  EXPECT_EQ(shares("i32", "for k in 0..64 @{sub_group=1} { L[0] = min(X[k], L[0]); }"), 1);
  EXPECT_EQ(shares("u32", "for k in 0..64 @{sub_group=1} { L[0] = min(X[k], L[0]); }"), 1);
  EXPECT_EQ(shares("f32", "for k in 0..64 { L[0] = L[0] + X[k]; }"), 0);
  EXPECT_EQ(shares("f32", "if (t < 9) { " + sum + " }"), 0) << "not all threads come to it";
  EXPECT_EQ(shares("f32", "for k in 0..64 @{sub_group=1} { L[0] = L[0] + X[k + t]; }"), 0);
  // Where a driver that counts needs unrolled loops.
  EXPECT_EQ(shares("f32", "for a in 0..70000 { Y[t] = Y[t] + X[t]; }\n" + sum), 0);
  EXPECT_EQ(Count(OpsOf(Emitted(InThreads("L[0] = 0.0f32;\n" + sum + "\nY[t] = L[0];"))),
                  spv::Op::OpGroupNonUniformFAdd),
            0)
      << "no option, no sub-groups";
}

// One operation instead of four products, each of its sort.
TEST(Spirv, DotProductsOfBytesAreInstructions) {
  const auto made = [](const std::string& a, const std::string& b, bool by_instruction) {
    const KernelModule module = Emitted(
        StrCat(
            "fn f(A: ", a, "[256] input, B: ", b, "[512] input, Y: i32[128] output) stage=flat {\n",
            "  for t in 0..64 threadIdx.x {\n    Y[ramp(t * 2, 1, 2)] = dot4(broadcast(7i32, 2), ",
            "A[ramp(t * 4, 1, 4)], B[ramp(t * 8, 1, 8)]);\n  }\n}\n"),
        {.dot_products = by_instruction});
    const bool asks =
        std::count(module.features.begin(), module.features.end(), "shaderIntegerDotProduct") == 1;
    EXPECT_EQ(asks, by_instruction);
    const auto ops = OpsOf(module);
    return std::vector<int64_t>{Count(ops, spv::Op::OpSDot), Count(ops, spv::Op::OpUDot),
                                Count(ops, spv::Op::OpSUDot), Count(ops, spv::Op::OpIMul)};
  };
  using Counts = std::vector<int64_t>;
  const int64_t index = made("i8", "i8", true).back();
  EXPECT_EQ(made("i8", "i8", true), (Counts{2, 0, 0, index}));
  EXPECT_EQ(made("u8", "u8", true), (Counts{0, 2, 0, index}));
  EXPECT_EQ(made("i8", "u8", true), (Counts{0, 0, 2, index}));
  EXPECT_EQ(made("u8", "i8", true), (Counts{0, 0, 2, index}));
  EXPECT_EQ(made("u8", "i8", false), (Counts{0, 0, 0, index + 8}));
}

TEST(Spirv, WhatIsNotThereIsRefused) {
  EXPECT_EQ(support::Slug(Refusal(InThreads("Y[t] = X[t];", "bf16"))),
            "codegen.vulkan.unsupported");
  EXPECT_EQ(support::Slug(Refusal(InThreads("Y[t] = erf(X[t]);", "f64"))),
            "codegen.vulkan.unsupported");
  EXPECT_EQ(support::Slug(Refusal("fn f(X: f32[2000000000] input, Y: f32[1] output) stage=flat {\n"
                                  "  Y[0] = X[1999999999];\n}\n")),
            "codegen.vulkan.buffer_bytes");
  EXPECT_EQ(support::Slug(Refusal("fn f(X: f32[4] input, Y: f32[4] output) stage=loops {\n"
                                  "  for i in 0..4 {\n    Y[i] = X[i];\n  }\n}\n")),
            "codegen.vulkan.not_flat");
}

TEST(Spirv, TheSameKernelIsTheSameWords) {
  const std::string text = InThreads("Y[t] = tanh(X[t]) + sin(X[t + 64]);");
  EXPECT_EQ(Emitted(text).words, Emitted(text).words);
}

constexpr char kSized[] =
    R"(fn f(n: size, m: size, X: f32[n] input, B: i8[48] input, Y: f32[m] output) stage=flat {
  alloc S: f32[32] scope=shared {
    for y in 0..4 threadIdx.y {
      for x in 0..8 threadIdx.x {
        S[y * 8 + x] = X[x] + f32(B[y]);
        sync barrier;
        Y[y * 8 + x] = S[31 - x];
      }
    }
  }
}
)";

TEST(Spirv, ThePluginReadsWhatTheModuleSays) {
  const KernelModule module = Emitted(kSized);
  KernelFacts facts;
  ASSERT_EQ(ReadKernel(module.words.data(), module.words.size(), &facts), "");
  EXPECT_EQ(facts.name, "f");
  EXPECT_EQ(facts.group, (std::array<uint32_t, 3>{8, 4, 1}));
  EXPECT_EQ(facts.buffers, (std::vector<int64_t>{0, 48, 0}));
  EXPECT_EQ(facts.size_bytes, 16);
  EXPECT_TRUE(facts.specialises);
  EXPECT_EQ(facts.shared_bytes, 128);
  EXPECT_TRUE(facts.capabilities.contains(static_cast<uint32_t>(spv::Capability::Int8)));
}

// Cut short anywhere, and with any word changed: refused, or read as other facts; never beyond the
// words (the sanitizer build sees that).
TEST(Spirv, ThePluginBelievesNoWord) {
  const KernelModule module = Emitted(kSized);
  int refused = 0;
  for (size_t count = 0; count < module.words.size(); ++count) {
    const Words cut(module.words.begin(), module.words.begin() + static_cast<int64_t>(count));
    KernelFacts facts;
    refused += !ReadKernel(cut.data(), cut.size(), &facts).empty();
  }
  EXPECT_GT(refused, static_cast<int>(module.words.size() / 2));
  for (size_t at = 0; at < module.words.size(); ++at) {
    for (uint32_t value :
         {0u, 1u, 0xffffu, 0x7fffffffu, 0xffffffffu, module.words[at] ^ 0x10000u}) {
      Words changed = module.words;
      changed[at] = value;
      KernelFacts facts;
      ReadKernel(changed.data(), changed.size(), &facts);
      EXPECT_LE(facts.shared_bytes, int64_t{1} << 33);
    }
  }
}

// A driver that counts iterations counts the end of a loop, too.
TEST(Spirv, LoopsAreUnrolledAsFarAsACountingDriverNeeds) {
  const auto cost = [](const std::string& loops) {
    const auto f = ir::ParseFunction(InThreads(loops));
    EXPECT_TRUE(f.ok()) << f.status();
    const int64_t unrolling = UnrollingOf(*f);
    return std::pair(unrolling, LoopCost(f->body, unrolling));
  };
  using Cost = std::pair<int64_t, uint32_t>;
  const std::string body = "{ Y[t] = X[t] + Y[t]; }";
  EXPECT_EQ(cost("Y[t] = X[t];"), Cost(1, 0));
  EXPECT_EQ(cost("for a in 0..65534 " + body), Cost(1, 65535));
  EXPECT_EQ(cost("for a in 0..65535 " + body), Cost(2, 32768));
  EXPECT_EQ(cost("for a in 0..10 { for b in 0..20 " + body + " }"), Cost(1, 10 * 21 + 11));
  EXPECT_EQ(cost("for a in 0..1000 { for b in 0..200 " + body + " }"), Cost(4, 1000 * 51 + 1001));
  EXPECT_EQ(cost("for a in 0..1000000 { for b in 0..1000000 " + body + " }"), Cost(1, 0xffffffffu));
  EXPECT_EQ(Emitted(InThreads("for a in 0..65535 " + body)).loops, 32768u);
}

// Maximum and sum need launches of their own.
TEST(VulkanCodegen, ATaskOfSeveralLaunchesIsAModuleOfThem) {
  const target::Target target = *target::ParseTarget("vulkan");
  constexpr char kSoftmax[] =
      "graph {\n  input %0: f32[3,100]\n  %1: f32[3,100] = softmax(%0) {axis=1}\n  output %1\n}\n";
  const auto steps = driver::DefaultSteps(kSoftmax, target);
  ASSERT_TRUE(steps.ok()) << steps.status();
  const auto built = driver::BuildCandidate(kSoftmax, *steps, target, nullptr);
  ASSERT_TRUE(built.ok()) << built.status();
  const auto file = module::ModuleFile::FromBytes(built->module_bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  const module::Manifest& manifest = file->manifest();
  EXPECT_EQ(manifest.code[0].device, "vulkan");
  EXPECT_EQ(manifest.code[0].format, TW_SPIRV_FORMAT);
  ASSERT_GT(manifest.functions[0].launches.size(), 1u);
  for (const module::Launch& launch : manifest.functions[0].launches)
    EXPECT_TRUE(launch.has_grid());
  for (const module::Tensor& tensor : manifest.tensors) EXPECT_EQ(tensor.offset % 512, 0);
}

}  // namespace
}  // namespace tilewright::vulkan
