#include "deploy/runtime/runtime.h"

#include <elf.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "deploy/module/module_file.h"
#include "deploy/module/module_writer.h"
#include "deploy/runtime/buffer.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/result_check.h"
#include "deploy/support/hash.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "gtest/gtest.h"
#include "tests/support/test_seed.h"
#include "tests/unit/module_fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

namespace tilewright::runtime {
namespace {

using module::Manifest;
using module::ModuleFile;
using module::ModuleParts;

absl::StatusOr<std::shared_ptr<const LoadedModule>> LoadParts(const ModuleParts& parts) {
  TW_ASSIGN(const std::string bytes, module::SerializeModule(parts));
  TW_ASSIGN(ModuleFile file, ModuleFile::FromBytes(bytes));
  return LoadedModule::Load(std::move(file));
}

std::unique_ptr<Session> SessionOf(const ModuleParts& parts, const SessionOptions& options = {}) {
  auto module = LoadParts(parts);
  EXPECT_TRUE(module.ok()) << module.status();
  auto session = Session::Create(*module, options);
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

std::vector<float> Input(float start) {
  std::vector<float> x;
  for (int i = 0; i < test::kRows * test::kInner; ++i) x.push_back(start + 0.5f * i);
  return x;
}

std::vector<float> Output(const Session& session) {
  const TensorView view = session.output(0);
  std::vector<float> out(view.bytes / sizeof(float));
  std::memcpy(out.data(), view.data, view.bytes);
  return out;
}

class RunTest : public testing::TestWithParam<std::pair<int, bool>> {};

TEST_P(RunTest, DenseGivesTheReferenceAgainAndAgain) {
  SessionOptions options;
  options.num_threads = GetParam().first;
  options.guard_pages = GetParam().second;
  const auto session = SessionOf(test::DenseModule(), options);
  EXPECT_LE(session->num_threads(), options.num_threads);
  for (int round = 0; round < 50; ++round) {
    const std::vector<float> x = Input(static_cast<float>(round));
    ASSERT_TRUE(session->SetInput(0, x.data(), x.size() * 4).ok());
    session->Poison(0xFF);
    ASSERT_TRUE(session->Run().ok());
    ASSERT_EQ(Output(*session), test::DenseReference(x)) << "round " << round;
    ASSERT_TRUE(session->CheckGuards().ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, RunTest,
                         testing::Values(std::pair{1, false}, std::pair{2, false},
                                         std::pair{1, true}, std::pair{2, true},
                                         std::pair{64, false}));

TEST(SessionTest, SessionsOfOneModuleAreIndependent) {
  const auto module = LoadParts(test::DenseModule());
  ASSERT_TRUE(module.ok()) << module.status();
  auto a = Session::Create(*module).value();
  auto b = Session::Create(*module).value();
  const std::vector<float> xa = Input(0);
  const std::vector<float> xb = Input(7);
  ASSERT_TRUE(a->SetInput(0, xa.data(), xa.size() * 4).ok());
  ASSERT_TRUE(b->SetInput(0, xb.data(), xb.size() * 4).ok());
  ASSERT_TRUE(a->Run().ok());
  ASSERT_TRUE(b->Run().ok());
  EXPECT_EQ(Output(*a), test::DenseReference(xa));
  EXPECT_EQ(Output(*b), test::DenseReference(xb));
}

TEST(SessionTest, TwoModulesWithTheSameSymbolsDoNotMix) {
  // Each loaded object counts its own calls, so sharing one would show.
  const auto first = SessionOf(test::OneKernelModule("count", 1));
  const auto second = SessionOf(test::OneKernelModule("count", 1));
  ASSERT_TRUE(first->Run().ok());
  ASSERT_TRUE(first->Run().ok());
  ASSERT_TRUE(second->Run().ok());
  EXPECT_EQ(Output(*first)[0], 2.0f);
  EXPECT_EQ(Output(*second)[0], 1.0f);
}

TEST(SessionTest, PrepareThatReadsAnInputRunsAgainWhenItChanges) {
  ModuleParts parts = test::DenseModule();
  Manifest& m = parts.manifest;
  // The weights become an input; packing them stays a prepare launch.
  m.tensors[1].kind = module::TensorKind::kInput;
  m.functions[0].inputs = {0, 1};
  const auto session = SessionOf(parts);
  const std::vector<float> x = Input(1);
  std::vector<float> w(test::kInner * test::kColumns, 0.0f);
  ASSERT_TRUE(session->SetInput(0, x.data(), x.size() * 4).ok());
  ASSERT_TRUE(session->SetInput(1, w.data(), w.size() * 4).ok());
  ASSERT_TRUE(session->Prepare().ok());
  ASSERT_TRUE(session->Run().ok());
  EXPECT_EQ(Output(*session)[1], 100.0f) << "zero weights leave the bias";
  session->Poison(0xFF);
  ASSERT_TRUE(session->Run().ok());
  EXPECT_EQ(Output(*session)[1], 100.0f) << "poison spares prepared tensors";
  w[1] = 2.0f;  // w[0][1]
  ASSERT_TRUE(session->SetInput(1, w.data(), w.size() * 4).ok());
  ASSERT_TRUE(session->Run().ok());
  EXPECT_EQ(Output(*session)[1], 100.0f + 2.0f * x[0]);
}

TEST(SessionTest, ProfileNamesEveryLaunch) {
  const auto session = SessionOf(test::DenseModule());
  std::span<const TwLaunchTime> times;
  ASSERT_TRUE(session->RunProfiled(&times).ok());
  ASSERT_EQ(times.size(), 2u) << "prepare launches are not part of a run";
  EXPECT_STREQ(times[0].name, "matmul");
  EXPECT_STREQ(times[1].name, "add");
  EXPECT_GE(times[0].ns, 0);
}

TEST(SessionTest, WrongUseIsAnError) {
  const auto session = SessionOf(test::DenseModule());
  const std::vector<float> x = Input(0);
  EXPECT_EQ(support::Slug(session->SetInput(1, x.data(), 4)), "runtime.session.input_index");
  EXPECT_EQ(support::Slug(session->SetInput(0, x.data(), 4)), "runtime.session.input_bytes");
  EXPECT_EQ(support::Slug(session->SetInput(0, nullptr, x.size() * 4)),
            "runtime.session.input_bytes");
  SessionOptions options;
  options.function = "other";
  EXPECT_EQ(support::Slug(Session::Create(*LoadParts(test::DenseModule()), options).status()),
            "runtime.session.function");
}

TEST(SessionTest, KernelErrorsAreReported) {
  const auto fails = SessionOf(test::OneKernelModule("fail", 1));
  const absl::Status status = fails->Run();
  EXPECT_EQ(support::Slug(status), "runtime.run.kernel_failed");
  EXPECT_NE(support::Detail(status).find("tw_kernel_fail returned 42"), std::string::npos);
  SessionOptions options;
  options.num_threads = 2;
  const auto in_task = SessionOf(test::OneKernelModule("fail_in_task", 1), options);
  EXPECT_NE(support::Detail(in_task->Run()).find("returned 77"), std::string::npos);
}

TEST(SessionTest, ResultThatIsNotComputedIsNotTheOldOne) {
  const auto session = SessionOf(test::OneKernelModule("nothing", 2));
  session->Poison(0xFF);
  ASSERT_TRUE(session->Run().ok());
  EXPECT_NE(Output(*session)[0], Output(*session)[0]) << "still NaN";
}

TEST(GuardTest, WritesIntoPaddingAreFound) {
  SessionOptions options;
  options.guard_pages = true;
  // 3 floats: 12 bytes, padded to 64. One float more stays within the padding.
  const auto after = SessionOf(test::OneKernelModule("write_at", 3, {4, 0}), options);
  ASSERT_TRUE(after->Run().ok());
  EXPECT_EQ(support::Slug(after->CheckGuards()), "runtime.guard.overwritten");
  const auto before = SessionOf(test::OneKernelModule("write_at", 3, {1, -1}), options);
  ASSERT_TRUE(before->Run().ok());
  EXPECT_EQ(support::Slug(before->CheckGuards()), "runtime.guard.overwritten");
  const auto inside = SessionOf(test::OneKernelModule("write_at", 3, {3, 0}), options);
  ASSERT_TRUE(inside->Run().ok());
  EXPECT_TRUE(inside->CheckGuards().ok());
}

TEST(GuardDeathTest, WritesBeyondThePageFault) {
  if (kSanitized) GTEST_SKIP() << "[SKIP] a sanitizer handles the fault itself";
  SessionOptions options;
  options.guard_pages = true;
  const auto segv = testing::KilledBySignal(SIGSEGV);
  EXPECT_EXIT((void)SessionOf(test::OneKernelModule("write_at", 3, {1, 16}), options)->Run(), segv,
              "");
  EXPECT_EXIT((void)SessionOf(test::OneKernelModule("write_at", 3, {1, -1100}), options)->Run(),
              segv, "");
  EXPECT_EXIT((void)SessionOf(test::OneKernelModule("write_input", 3), options)->Run(), segv, "")
      << "inputs are read-only while kernels run";
}

TEST(LoadTest, MissingCpuFeaturesAreNamed) {
  ModuleParts parts = test::DenseModule();
  parts.manifest.cpu_features = {"hyperdrive", "sse2"};
  const absl::Status status = LoadParts(parts).status();
  EXPECT_EQ(support::Slug(status), "runtime.load.cpu_features");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(support::Detail(status).find("lacks hyperdrive"), std::string::npos);
}

TEST(LoadTest, WhatThisRuntimeCannotRunIsRefused) {
  ModuleParts parts = test::DenseModule();
  parts.manifest.code[0].abi_version = TW_ABI_VERSION + 1;
  EXPECT_EQ(support::Slug(LoadParts(parts).status()), "runtime.load.abi_version");

  parts = test::DenseModule();
  parts.manifest.code[0].format = "elf-vax";
  EXPECT_EQ(support::Slug(LoadParts(parts).status()), "runtime.code.format");

  parts = test::DenseModule();
  parts.manifest.functions[0].launches[0].symbol = "tw_kernel_absent";
  const absl::Status absent = LoadParts(parts).status();
  EXPECT_EQ(support::Slug(absent), "runtime.code.symbol");
  EXPECT_EQ(absent.code(), absl::StatusCode::kDataLoss);
}

TEST(LoadTest, CodeThatIsNoSharedObjectIsRefused) {
  ModuleParts parts = test::DenseModule();
  parts.code[0] = "not an ELF file, but long enough to hold an ELF header: " + std::string(64, 'x');
  EXPECT_EQ(support::Slug(LoadParts(parts).status()), "runtime.code.elf");
  parts = test::DenseModule();
  parts.code[0].resize(200);  // a header without what it points to
  EXPECT_EQ(support::Slug(LoadParts(parts).status()), "runtime.code.elf");
  parts.code[0] = "";
  EXPECT_EQ(support::Slug(LoadParts(parts).status()), "runtime.code.elf");
}

// The system's loader believes the headers: a wrong one must not reach it. Each round is a process.
TEST(LoadTest, NoChangedHeaderEndsTheProcess) {
  if (kSanitized) GTEST_SKIP() << "[SKIP] too slow with a sanitizer";
  const ModuleParts whole = test::DenseModule();
  const std::string& code = whole.code[0];
  Elf64_Ehdr header;
  std::memcpy(&header, code.data(), sizeof(header));
  const size_t end = header.e_phoff + header.e_phnum * size_t{header.e_phentsize};
  ASSERT_LT(end, code.size());
  const uint64_t seed = tests::TestSeed(3);
  support::Rng rng(seed);
  int loaded = 0;
  for (size_t at = 0; at < end; ++at) {
    ModuleParts parts = whole;
    parts.code[0][at] = static_cast<char>(rng.UniformInt(0, 255));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(LoadParts(parts).ok() ? 0 : 1);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status))
        << "byte " << at << " seed " << seed << " signal " << WTERMSIG(status);
    loaded += status == 0 ? 1 : 0;
  }
  EXPECT_LT(loaded, static_cast<int>(end) * 2 / 3) << "many of these bytes mean something";
}

TEST(LoadTest, ImpossibleMemoryIsAnErrorNotACrash) {
  ModuleParts parts = test::DenseModule();
  parts.manifest.arena_bytes = int64_t{1} << 46;
  auto module = LoadParts(parts);
  ASSERT_TRUE(module.ok());
  const auto session = Session::Create(*module);
  if (session.ok()) GTEST_SKIP() << "[SKIP] this machine promises 64 TiB of memory";
  EXPECT_EQ(support::Slug(session.status()), "runtime.buffer.memory");
}

TEST(BufferTest, AlignedAndZeroed) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{64}, size_t{100000}, size_t{5} << 20}) {
    for (const bool guard : {false, true}) {
      auto buffer = guard ? Buffer::AllocateGuarded(bytes) : Buffer::Allocate(bytes);
      ASSERT_TRUE(buffer.ok());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % TW_BUFFER_ALIGNMENT, 0u);
      const std::string zeros(bytes, '\0');
      EXPECT_EQ(std::memcmp(buffer->data(), zeros.data(), bytes), 0);
      EXPECT_TRUE(buffer->PaddingIntact());
    }
  }
  EXPECT_FALSE(Buffer::Allocate(~size_t{0}).ok());
}

TEST(ResultCheckTest, MeasurementOfACandidate) {
  const auto session = SessionOf(test::DenseModule());
  const std::vector<module::InputSpec> specs = {{0, 9, {}}};
  ASSERT_TRUE(FillInputs(specs, session.get()).ok());
  ASSERT_TRUE(session->Run().ok());
  std::string expected = OutputBytes(*session);
  auto results = CheckOutputs(*session, expected, {});
  ASSERT_TRUE(results.ok());
  EXPECT_TRUE((*results)[0].ok());
  float wrong = 0;
  std::memcpy(&wrong, expected.data() + 20, 4);
  wrong += 1;
  std::memcpy(expected.data() + 20, &wrong, 4);
  results = CheckOutputs(*session, expected, {1e-3, 1e-5});
  EXPECT_EQ((*results)[0].first_mismatch, 5);
  EXPECT_EQ(support::Slug(CheckOutputs(*session, "short", {}).status()),
            "runtime.result_check.size");
  EXPECT_FALSE(FillInputs({{1, 9, {}}}, session.get()).ok());
}

TEST(CpuInfoTest, DescribesThisMachine) {
  const CpuInfo cpu = DetectCpu();
  EXPECT_FALSE(cpu.arch.empty());
  EXPECT_GE(cpu.cores_usable, 1);
  EXPECT_LE(cpu.cores_usable, cpu.cores_online);
  EXPECT_TRUE(std::is_sorted(cpu.features.begin(), cpu.features.end()));
#if defined(__x86_64__)
  EXPECT_TRUE(cpu.HasFeature("sse2"));
  EXPECT_FALSE(cpu.model_name.empty());
  EXPECT_EQ(cpu.HasFeature("avx2"), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(cpu.HasFeature("avx512f"), __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(cpu.HasFeature("avx512vnni"), __builtin_cpu_supports("avx512vnni") != 0);
  EXPECT_EQ(cpu.HasFeature("fma"), __builtin_cpu_supports("fma") != 0);
#endif
  EXPECT_EQ(MissingFeatures(cpu, {"hyperdrive"}), std::vector<std::string>{"hyperdrive"});
}

}  // namespace
}  // namespace tilewright::runtime
