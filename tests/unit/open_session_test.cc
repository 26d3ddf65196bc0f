// Sessions of modules with size variables: every legal size gives its results, in any order, by
// one session or many; what is not legal is refused and changes nothing.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "deploy/module/module_file.h"
#include "deploy/module/module_writer.h"
#include "deploy/runtime/device_loader.h"
#include "deploy/runtime/runtime.h"
#include "deploy/runtime/session_memory.h"
#include "deploy/support/status.h"
#include "tests/unit/module_fixture.h"

namespace tilewright::runtime {
namespace {

using module::ModuleParts;
using test::kColumns;
using test::kInner;
using test::kMostRows;

absl::StatusOr<std::unique_ptr<Session>> Create(const ModuleParts& parts,
                                                const SessionOptions& options = {}) {
  TW_ASSIGN(const std::string bytes, module::SerializeModule(parts));
  TW_ASSIGN(module::ModuleFile file, module::ModuleFile::FromBytes(bytes));
  TW_ASSIGN(auto module, LoadedModule::Load(std::move(file)));
  return Session::Create(std::move(module), options);
}

std::unique_ptr<Session> SessionOf(const ModuleParts& parts, const SessionOptions& options = {}) {
  auto session = Create(parts, options);
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

// A tensor of floats, rows x columns.
struct Matrix {
  Matrix(int64_t rows, int64_t columns) : shape{rows, columns} {
    values.resize(static_cast<size_t>(rows * columns));
    tensor.data = values.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 2;
    tensor.dtype = {kDLFloat, 32, 1};
    tensor.shape = shape;
  }
  Matrix(const Matrix&) = delete;
  int64_t shape[2];
  std::vector<float> values;
  DLTensor tensor{};
};

// Small whole numbers, so that sums are exact.
void Fill(Matrix* x, int seed) {
  for (size_t i = 0; i < x->values.size(); ++i) {
    x->values[i] = static_cast<float>((i * 7 + static_cast<size_t>(seed) * 13) % 17) - 8;
  }
}

absl::Status Call(Session* session, const Matrix& x, Matrix* y) {
  const DLTensor* inputs[] = {&x.tensor};
  const DLTensor* outputs[] = {&y->tensor};
  return session->Call(inputs, outputs);
}

void CheckRows(Session* session, int64_t rows, int seed) {
  Matrix x(rows, kInner), y(rows, kColumns);
  Fill(&x, seed);
  const absl::Status status = Call(session, x, &y);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(y.values, test::OpenRowsReference(x.values)) << rows << " rows";
}

// Of a module whose operators need an even number of rows.
TEST(OpenSessionTest, SizesThatAreNoneOfTheModuleAreRefused) {
  ModuleParts parts = test::OpenRowsModule(false);
  const module::Dim rows = module::Dim::Variable("N");
  parts.manifest.equal_sizes.push_back({rows, rows.FloorDiv(2) * 2, "join"});
  parts.manifest.format_version = parts.manifest.NeededFormatVersion();
  const auto session = SessionOf(parts);
  EXPECT_EQ(support::Slug(session->Run()), "module.sizes.unequal");  // 1, the smallest
  CheckRows(session.get(), 4, 1);
  Matrix x(5, kInner), y(5, kColumns);
  EXPECT_EQ(support::Slug(Call(session.get(), x, &y)), "module.sizes.unequal");
  CheckRows(session.get(), 6, 2);
}

TEST(OpenSessionTest, EverySizeGivesItsResultsInAnyOrder) {
  for (const bool specialised : {false, true}) {
    for (const bool guard : {false, true}) {
      SessionOptions options;
      options.num_threads = 2;
      options.guard_pages = guard;
      const auto session = SessionOf(test::OpenRowsModule(specialised), options);
      for (const int64_t rows : {1, 4, 33, 7, 4, 4, 32, 1, 33, 4, 2, 3, 5}) {
        CheckRows(session.get(), rows, static_cast<int>(rows));
        EXPECT_EQ(session->sizes(), (module::Sizes{{"N", rows}}));
        EXPECT_EQ(session->output(0).shape, (std::vector<int64_t>{rows, kColumns}));
        EXPECT_EQ(session->function().name, specialised && rows == 4 ? "four" : "main");
        EXPECT_TRUE(session->CheckGuards().ok());
      }
    }
  }
}

TEST(OpenSessionTest, NothingDependsOnWhatAnotherSizeLeft) {
  const auto session = SessionOf(test::OpenRowsModule());
  CheckRows(session.get(), kMostRows, 1);
  for (const int64_t rows : {3, 4, 17}) {
    CheckRows(session.get(), rows, 2);
    session->Poison(0xFF);
    CheckRows(session.get(), rows, 3);
  }
}

TEST(OpenSessionTest, StepsKeepTheSizes) {
  const auto session = SessionOf(test::OpenRowsModule());
  EXPECT_EQ(session->input(0).shape, (std::vector<int64_t>{1, kInner})) << "the minimum first";
  EXPECT_EQ(session->output(0).bytes, size_t{kColumns} * 4);
  const int64_t shape[] = {6, kInner};
  ASSERT_TRUE(session->SetInputShape(0, shape).ok());
  ASSERT_TRUE(session->BindSizes().ok());
  EXPECT_EQ(session->output(0).shape, (std::vector<int64_t>{6, kColumns}));
  Matrix x(6, kInner);
  Fill(&x, 5);
  ASSERT_TRUE(session->SetInput(0, x.values.data(), x.values.size() * 4).ok());
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(session->Run().ok());
    DLTensor y{};
    ASSERT_TRUE(session->GetOutput(0, &y).ok());
    ASSERT_EQ(y.shape[0], 6);
    const std::vector<float> expected = test::OpenRowsReference(x.values);
    EXPECT_EQ(std::memcmp(y.data, expected.data(), expected.size() * 4), 0);
  }
  std::span<const TwLaunchTime> times;
  ASSERT_TRUE(session->RunProfiled(&times).ok());
  EXPECT_EQ(times.size(), 3u);
  EXPECT_EQ(support::Slug(session->SetInput(0, x.values.data(), 4)), "runtime.session.input_bytes");
}

TEST(OpenSessionTest, WrongSizesAreRefusedAndChangeNothing) {
  const auto session = SessionOf(test::OpenRowsModule());
  Matrix x(5, kInner), y(5, kColumns), other(5, kInner);
  Fill(&x, 1);
  Fill(&other, 2);
  ASSERT_TRUE(Call(session.get(), x, &y).ok());
  const std::vector<float> expected = y.values;
  const std::pair<int64_t, std::string> wrong[] = {
      {0, "input 'x': dimension 0 (N): expected 1 to 33, found 0"},
      {34, "input 'x': dimension 0 (N): expected 1 to 33, found 34"}};
  for (const auto& [rows, text] : wrong) {
    Matrix bad(rows, kInner), result(rows, kColumns);
    const absl::Status status = Call(session.get(), bad, &result);
    EXPECT_EQ(support::Slug(status), "runtime.session.size");
    EXPECT_EQ(support::Detail(status), text);
    EXPECT_FALSE(session->SetInput(0, bad.tensor).ok());
    const int64_t shape[] = {rows, kInner};
    EXPECT_FALSE(session->SetInputShape(0, shape).ok());
  }
  Matrix narrow(5, kInner - 1);
  EXPECT_EQ(support::Slug(Call(session.get(), narrow, &y)), "runtime.c_api.shape");
  // An output for other sizes than the inputs make; new sizes that were planned are not kept.
  Matrix more(6, kInner);
  const absl::Status unequal = Call(session.get(), more, &y);
  EXPECT_EQ(support::Slug(unequal), "runtime.c_api.shape");
  EXPECT_EQ(support::Detail(unequal), "output 'y': expected 6x16, found 5x16");
  ASSERT_TRUE(session->Run().ok());
  DLTensor view{};
  ASSERT_TRUE(session->GetOutput(0, &view).ok());
  EXPECT_EQ(view.shape[0], 5);
  EXPECT_EQ(std::memcmp(view.data, expected.data(), expected.size() * 4), 0);
}

TEST(OpenSessionTest, FunctionsByName) {
  SessionOptions options;
  options.function = "four";
  const auto four = SessionOf(test::OpenRowsModule(), options);
  CheckRows(four.get(), 4, 1);
  Matrix x(5, kInner), y(5, kColumns);
  EXPECT_EQ(support::Slug(Call(four.get(), x, &y)), "runtime.c_api.shape");
}

TEST(OpenSessionTest, TheMostSpecialFunctionThatFitsRuns) {
  const auto session = SessionOf(test::TwoSizesModule());
  const auto name_at = [](int64_t n, int64_t m) -> std::string {
    if (n == 4) return m == 2 ? "both" : "four";
    return m == 2 ? "two" : "main";
  };
  for (int round = 0; round < 2; ++round) {
    for (int64_t n = 1; n <= 9; ++n) {
      for (int64_t m = 9; m >= 1; --m) {
        Matrix x(1, n), w(1, m), y(1, n), z(1, m);
        Fill(&x, static_cast<int>(n));
        Fill(&w, static_cast<int>(m));
        std::vector<DLTensor> tensors = {x.tensor, w.tensor, y.tensor, z.tensor};
        for (DLTensor& tensor : tensors) {
          tensor.ndim = 1;
          ++tensor.shape;
        }
        const DLTensor* inputs[] = {&tensors[0], &tensors[1]};
        const DLTensor* outputs[] = {&tensors[2], &tensors[3]};
        const absl::Status status = session->Call(inputs, outputs);
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(session->function().name, name_at(n, m)) << n << " " << m;
        for (float& value : x.values) value *= 2;
        for (float& value : w.values) value *= 2;
        EXPECT_EQ(y.values, x.values);
        EXPECT_EQ(z.values, w.values);
      }
    }
  }
}

TEST(OpenSessionTest, AFunctionThatIsOpenInPartRunsByName) {
  SessionOptions options;
  options.function = "four";
  const auto four = SessionOf(test::TwoSizesModule(), options);
  EXPECT_EQ(four->sizes(), (module::Sizes{{"M", 1}, {"N", 4}}));
  const int64_t two = 2, five = 5, ten = 10;
  ASSERT_TRUE(four->SetInputShape(1, {&five, 1}).ok());
  ASSERT_TRUE(four->BindSizes().ok());
  EXPECT_EQ(four->sizes(), (module::Sizes{{"M", 5}, {"N", 4}}));
  ASSERT_TRUE(four->SetInputShape(1, {&two, 1}).ok());
  ASSERT_TRUE(four->BindSizes().ok());
  EXPECT_EQ(four->function().name, "four") << "others are not in its session";
  EXPECT_EQ(support::Slug(four->SetInputShape(0, {&five, 1})), "runtime.c_api.shape");
  EXPECT_EQ(support::Slug(four->SetInputShape(1, {&ten, 1})), "runtime.session.size");
}

// A function that was prepared stays so, whatever ran in between: what is prepared twice is wrong.
TEST(OpenSessionTest, ProfilesFollowTheFunction) {
  const auto session = SessionOf(test::OpenRowsModule());
  for (const int64_t rows : {4, 7, 4, 1}) {
    CheckRows(session.get(), rows, 1);
    std::span<const TwLaunchTime> times;
    ASSERT_TRUE(session->RunProfiled(&times).ok());
    ASSERT_EQ(times.size(), session->function().launches.size());
    for (size_t i = 0; i < times.size(); ++i) {
      EXPECT_EQ(times[i].symbol, session->function().launches[i].symbol) << "its own names";
    }
    CheckRows(session.get(), rows, 2);
  }
}

TEST(OpenSessionTest, AMemoryLimitIsAnError) {
  // Arena and workspace of 33 rows need 2 x 2112 + 2112 bytes, ends and the packed weight more.
  SessionOptions options;
  options.memory_limit_bytes = 6000;
  const auto session = SessionOf(test::OpenRowsModule(), options);
  CheckRows(session.get(), 8, 1);
  Matrix x(kMostRows, kInner), y(kMostRows, kColumns);
  const absl::Status status = Call(session.get(), x, &y);
  EXPECT_EQ(support::Slug(status), "runtime.session.memory_limit") << status;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  session->Poison(0xFF);  // touches no memory that has gone
  CheckRows(session.get(), 8, 2);
  CheckRows(session.get(), 4, 3);
  options.memory_limit_bytes = 100;
  EXPECT_EQ(support::Slug(Create(test::OpenRowsModule(), options).status()),
            "runtime.session.memory_limit");
}

module::Tensor Floats(int64_t most) {
  module::Tensor tensor;
  tensor.shape = {module::Dim::Variable("N")};
  tensor.bytes = most * 4;
  return tensor;
}

TEST(SessionMemoryTest, GrowsByHalfUpToTheMostAndNeverShrinks) {
  SessionMemory memory(/*limit_bytes=*/0, /*guard=*/false);
  ASSERT_TRUE(memory.GrowWorkspace(1000, 10000).ok());
  EXPECT_EQ(memory.workspace_bytes(), 1000u);
  const uint64_t version = memory.version();
  ASSERT_TRUE(memory.GrowWorkspace(900, 10000).ok());
  EXPECT_EQ(memory.version(), version) << "nothing moved";
  ASSERT_TRUE(memory.GrowWorkspace(1001, 10000).ok());
  EXPECT_EQ(memory.workspace_bytes(), 1500u);
  EXPECT_NE(memory.version(), version) << "programs that hold the old address must notice";
  ASSERT_TRUE(memory.GrowWorkspace(9000, 10000).ok());
  ASSERT_TRUE(memory.GrowWorkspace(9500, 10000).ok());
  EXPECT_EQ(memory.workspace_bytes(), 10000u);
  ASSERT_TRUE(memory.GrowWorkspace(12000, 10000).ok()) << "sizes between the bounds may need more";
  EXPECT_EQ(memory.workspace_bytes(), 12000u);
  const uint64_t arena = memory.version();
  ASSERT_TRUE(memory.GrowArena(64, 64).ok());
  EXPECT_NE(memory.version(), arena);
}

TEST(SessionMemoryTest, EndsKeepTheirMemoryUnlessGuarded) {
  const module::Tensor tensor = Floats(100);
  for (const bool guard : {false, true}) {
    SessionMemory memory(/*limit_bytes=*/0, guard);
    SessionEnd& end = memory.inputs.emplace_back();
    end.tensor = &tensor;
    const auto reshape = [&](int64_t n) {
      ASSERT_TRUE(memory.Reshape(&end, std::vector<int64_t>{n}, n * 4).ok());
      EXPECT_EQ(end.bytes, static_cast<size_t>(n) * 4);
      EXPECT_EQ(end.shape, std::vector<int64_t>{n});
    };
    reshape(40);
    reshape(50);
    EXPECT_EQ(end.buffer.bytes(), guard ? 200u : 240u);
    const uint64_t version = memory.version();
    reshape(20);
    EXPECT_EQ(memory.version() == version, !guard) << "guarded ends are as large as their tensors";
    EXPECT_EQ(end.buffer.bytes(), guard ? 80u : 240u);
  }
}

TEST(SessionMemoryTest, TheLimitIsOfAllBuffers) {
  const module::Tensor tensor = Floats(1000);
  SessionMemory memory(/*limit_bytes=*/1000, /*guard=*/false);
  SessionEnd& end = memory.outputs.emplace_back();
  end.tensor = &tensor;
  ASSERT_TRUE(memory.Reshape(&end, std::vector<int64_t>{100}, 400).ok());
  ASSERT_TRUE(memory.GrowArena(400, 5000).ok());
  const absl::Status status = memory.GrowArena(601, 5000);
  EXPECT_EQ(support::Slug(status), "runtime.session.memory_limit");
  ASSERT_TRUE(memory.GrowArena(500, 5000).ok()) << "half as much again does not fit, so less";
  const absl::Status more = memory.Reshape(&end, std::vector<int64_t>{110}, 440);
  EXPECT_EQ(support::Slug(more), "runtime.session.memory_limit");
  EXPECT_EQ(end.shape, std::vector<int64_t>{100}) << "it is as before";
  EXPECT_EQ(end.bytes, 400u);
}

TEST(OpenSessionTest, ThreadsShareASession) {
  const auto session = SessionOf(test::OpenRowsModule(), {.num_threads = 2});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&session, t] {
      for (int i = 0; i < 200; ++i) CheckRows(session.get(), 1 + (i * 5 + t * 11) % kMostRows, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(OpenSessionTest, SessionsSideBySide) {
  const auto bytes = module::SerializeModule(test::OpenRowsModule());
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  auto file = module::ModuleFile::FromBytes(*bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto module = LoadedModule::Load(*std::move(file));
  ASSERT_TRUE(module.ok()) << module.status();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&module, t] {
      const auto session = Session::Create(*module);
      ASSERT_TRUE(session.ok()) << session.status();
      for (int i = 0; i < 100; ++i) CheckRows(session->get(), 1 + (i + t * 7) % kMostRows, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(OpenSessionTest, DevicesAreRefused) {
  ModuleParts parts = test::OpenRowsModule();
  parts.manifest.code[0].device = CpuDevicePlugin()->kind;
  const absl::Status status = Create(parts).status();
  EXPECT_EQ(support::Slug(status), "runtime.load.open_sizes") << status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tilewright::runtime
