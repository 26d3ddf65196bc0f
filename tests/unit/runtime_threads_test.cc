// Sessions of the C interface under several threads and in forked children.
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "deploy/module/module_writer.h"
#include "deploy/runtime/tilewright.h"
#include "deploy/support/file.h"
#include "gtest/gtest.h"
#include "tests/unit/module_fixture.h"

namespace {

using tilewright::test::DenseReference;
using tilewright::test::kColumns;
using tilewright::test::kInner;
using tilewright::test::kRows;

TwModule* Open(const tilewright::module::ModuleParts& parts) {
  const auto bytes = tilewright::module::SerializeModule(parts);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  TwModule* module = nullptr;
  EXPECT_EQ(tw_module_open_memory(bytes->data(), bytes->size(), &module), TW_STATUS_OK)
      << tw_last_error();
  return module;
}

TwSession* MakeSession(TwModule* module, int threads) {
  TwSession* session = nullptr;
  EXPECT_EQ(tw_session_create(module, threads, &session), TW_STATUS_OK) << tw_last_error();
  return session;
}

DLTensor Tensor(std::vector<float>& values, int64_t* shape) {
  DLTensor t{};
  t.data = values.data();
  t.device = {kDLCPU, 0};
  t.ndim = 2;
  t.dtype = {kDLFloat, 32, 1};
  t.shape = shape;
  return t;
}

std::vector<float> InputOf(int number) {
  std::vector<float> x;
  for (int i = 0; i < kRows * kInner; ++i) x.push_back(0.25f * i - static_cast<float>(number));
  return x;
}

// One call of the dense module, from memory to memory.
TwStatus Call(TwSession* session, std::vector<float> x, std::vector<float>* y) {
  int64_t x_shape[2] = {kRows, kInner};
  int64_t y_shape[2] = {kRows, kColumns};
  y->assign(kRows * kColumns, 0.0f);
  const DLTensor in = Tensor(x, x_shape);
  const DLTensor out = Tensor(*y, y_shape);
  const DLTensor* inputs[] = {&in};
  const DLTensor* outputs[] = {&out};
  return tw_session_call(session, inputs, 1, outputs, 1);
}

class CallThreadsTest : public testing::TestWithParam<int> {};

TEST_P(CallThreadsTest, EachThreadGetsTheOutputsOfItsInputs) {
  TwModule* module = Open(tilewright::test::DenseModule());
  TwSession* session = MakeSession(module, GetParam());
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([session, number] {
      const std::vector<float> wanted = DenseReference(InputOf(number));
      std::vector<float> y;
      for (int round = 0; round < 1000; ++round) {
        ASSERT_EQ(Call(session, InputOf(number), &y), TW_STATUS_OK) << tw_last_error();
        ASSERT_EQ(y, wanted) << "thread " << number << ", round " << round;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  tw_session_destroy(session);
  tw_module_close(module);
}

TEST_P(CallThreadsTest, StepsThatOverlapAreRefusedAndDoNoHarm) {
  TwModule* module = Open(tilewright::test::DenseModule());
  TwSession* session = MakeSession(module, GetParam());
  std::atomic<int> runs{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&] {
      for (int round = 0; round < 1000; ++round) {
        const TwStatus status = tw_session_run(session);
        ASSERT_TRUE(status == TW_STATUS_OK || status == TW_STATUS_ABORTED) << status;
        runs += status == TW_STATUS_OK ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(runs.load(), 1);
  std::vector<float> y;
  ASSERT_EQ(Call(session, InputOf(7), &y), TW_STATUS_OK);
  EXPECT_EQ(y, DenseReference(InputOf(7)));
  tw_session_destroy(session);
  tw_module_close(module);
}

INSTANTIATE_TEST_SUITE_P(Threads, CallThreadsTest, testing::Values(1, 2));

TEST(SessionsTest, SessionsOfOneModuleRunAtTheSameTime) {
  TwModule* module = Open(tilewright::test::DenseModule());
  std::vector<TwSession*> sessions = {MakeSession(module, 1), MakeSession(module, 2)};
  tw_module_close(module);  // the sessions keep it
  std::vector<std::thread> threads;
  for (TwSession* session : sessions) {
    threads.emplace_back([session] {
      std::vector<float> y;
      for (int round = 0; round < 1000; ++round) {
        ASSERT_EQ(Call(session, InputOf(round), &y), TW_STATUS_OK);
        ASSERT_EQ(y, DenseReference(InputOf(round)));
      }
      tw_session_destroy(session);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CallTest, TensorsThatDoNotFitChangeNothing) {
  TwModule* module = Open(tilewright::test::DenseModule());
  TwSession* session = MakeSession(module, 1);
  std::vector<float> y;
  ASSERT_EQ(Call(session, InputOf(1), &y), TW_STATUS_OK);
  std::vector<float> x = InputOf(2);
  int64_t shape[2] = {kRows, kInner};
  const DLTensor in = Tensor(x, shape);
  const DLTensor wrong = Tensor(y, shape);  // an output has other columns
  const DLTensor* inputs[] = {&in};
  const DLTensor* outputs[] = {&wrong};
  EXPECT_EQ(tw_session_call(session, inputs, 1, outputs, 1), TW_STATUS_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tw_last_error()).find("output 'y'"), std::string::npos) << tw_last_error();
  EXPECT_EQ(tw_session_call(session, inputs, 1, outputs, 0), TW_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(tw_session_call(session, nullptr, 1, outputs, 1), TW_STATUS_INVALID_ARGUMENT);
  // A call that keeps the input finds the one from before, and may skip the output.
  const DLTensor* none[] = {nullptr};
  ASSERT_EQ(tw_session_call(session, none, 1, none, 1), TW_STATUS_OK) << tw_last_error();
  DLTensor view{};
  ASSERT_EQ(tw_session_get_output(session, 0, &view), TW_STATUS_OK);
  const std::vector<float> wanted = DenseReference(InputOf(1));
  EXPECT_EQ(std::memcmp(view.data, wanted.data(), wanted.size() * sizeof(float)), 0);
  tw_session_destroy(session);
  tw_module_close(module);
}

TEST(CallTest, WritesStridedOutputs) {
  TwModule* module = Open(tilewright::test::DenseModule());
  TwSession* session = MakeSession(module, 1);
  std::vector<float> x = InputOf(3);
  std::vector<float> columns(kColumns * (kRows + 1), -1.0f);  // by columns, a gap after each
  int64_t x_shape[2] = {kRows, kInner};
  int64_t y_shape[2] = {kRows, kColumns};
  int64_t strides[2] = {1, kRows + 1};
  const DLTensor in = Tensor(x, x_shape);
  DLTensor out = Tensor(columns, y_shape);
  out.strides = strides;
  const DLTensor* inputs[] = {&in};
  const DLTensor* outputs[] = {&out};
  ASSERT_EQ(tw_session_call(session, inputs, 1, outputs, 1), TW_STATUS_OK) << tw_last_error();
  const std::vector<float> wanted = DenseReference(x);
  for (int64_t n = 0; n < kColumns; ++n) {
    for (int64_t m = 0; m < kRows; ++m) {
      EXPECT_EQ(columns[n * (kRows + 1) + m], wanted[m * kColumns + n]);
    }
    EXPECT_EQ(columns[n * (kRows + 1) + kRows], -1.0f) << "the gap";
  }
  tw_session_destroy(session);
  tw_module_close(module);
}

// A session whose run ends when the test says so.
class BlockedRunTest : public testing::Test {
 protected:
  void SetUp() override {
    module_ = Open(tilewright::test::OneKernelModule("wait", sizeof(int*) / sizeof(float)));
    session_ = MakeSession(module_, 1);
    const int* address = signals_;
    ASSERT_EQ(tw_session_set_input_bytes(session_, 0, &address, sizeof(address)), TW_STATUS_OK)
        << tw_last_error();
    runner_ = std::thread([this] { status_ = tw_session_run(session_); });
    while (__atomic_load_n(&signals_[0], __ATOMIC_ACQUIRE) == 0) sched_yield();
  }
  void TearDown() override { tw_module_close(module_); }
  void EndRun() { __atomic_store_n(&signals_[1], 1, __ATOMIC_RELEASE); }

  int signals_[2] = {0, 0};
  TwModule* module_ = nullptr;
  TwSession* session_ = nullptr;
  TwStatus status_ = TW_STATUS_UNKNOWN;
  std::thread runner_;
};

TEST_F(BlockedRunTest, EveryStepIsRefusedMeanwhile) {
  const float bytes[2] = {0, 0};
  DLTensor view{};
  const TwLaunchTime* times = nullptr;
  size_t count = 0;
  EXPECT_EQ(tw_session_run(session_), TW_STATUS_ABORTED);
  EXPECT_EQ(std::string(tw_last_error()).rfind("runtime.session.busy", 0), 0u) << tw_last_error();
  EXPECT_EQ(tw_session_set_input_bytes(session_, 0, bytes, sizeof(bytes)), TW_STATUS_ABORTED);
  EXPECT_EQ(tw_session_set_input(session_, 0, &view), TW_STATUS_ABORTED);
  EXPECT_EQ(tw_session_get_output(session_, 0, &view), TW_STATUS_ABORTED);
  EXPECT_EQ(tw_session_run_profiled(session_, &times, &count), TW_STATUS_ABORTED);
  EndRun();
  runner_.join();
  EXPECT_EQ(status_, TW_STATUS_OK);
  EXPECT_EQ(tw_session_run(session_), TW_STATUS_OK) << "free again";
  tw_session_destroy(session_);
}

// The state letter of a thread of this process, as the kernel tells it: 'S' sleeps.
char StateOf(pid_t thread) {
  const auto stat =
      tilewright::support::ReadFile("/proc/self/task/" + std::to_string(thread) + "/stat", 1 << 16);
  if (!stat.ok()) return '?';
  const size_t end = stat->rfind(')');
  return end + 2 < stat->size() ? (*stat)[end + 2] : '?';
}

TEST_F(BlockedRunTest, DestroyWaitsForTheRun) {
  std::atomic<pid_t> destroyer_id{0};
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    destroyer_id = static_cast<pid_t>(syscall(SYS_gettid));
    tw_session_destroy(session_);
    destroyed = true;
  });
  while (!destroyed.load() && (destroyer_id.load() == 0 || StateOf(destroyer_id) != 'S')) {
    sched_yield();
  }
  EXPECT_FALSE(destroyed.load());
  EndRun();
  runner_.join();
  destroyer.join();
  EXPECT_EQ(status_, TW_STATUS_OK);
}

// What a child of fork() finds: 0, or the line that failed.
int UseInheritedSession(TwModule* module, TwSession* session, int threads) {
  std::vector<float> y;
  const TwStatus inherited = Call(session, InputOf(1), &y);
  const std::string why = tw_last_error();
  if (threads > 1 && inherited != TW_STATUS_FAILED_PRECONDITION) return __LINE__;
  if (threads > 1 && why.rfind("runtime.session.forked", 0) != 0) return __LINE__;
  if (threads == 1 && inherited != TW_STATUS_OK) return __LINE__;
  TwSession* own = nullptr;
  if (tw_session_create(module, 1, &own) != TW_STATUS_OK) return __LINE__;
  if (Call(own, InputOf(2), &y) != TW_STATUS_OK) return __LINE__;
  if (y != DenseReference(InputOf(2))) return __LINE__;
  tw_session_destroy(own);
  tw_session_destroy(session);
  tw_module_close(module);
  return 0;
}

TEST_P(CallThreadsTest, AForkedChildMakesItsOwnSession) {
  TwModule* module = Open(tilewright::test::DenseModule());
  TwSession* session = MakeSession(module, GetParam());
  std::vector<float> y;
  ASSERT_EQ(Call(session, InputOf(0), &y), TW_STATUS_OK);
  const int threads = tw_session_num_threads(session);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends a child that hangs
    _exit(UseInheritedSession(module, session, threads) == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(Call(session, InputOf(3), &y), TW_STATUS_OK) << "the parent goes on";
  EXPECT_EQ(y, DenseReference(InputOf(3)));
  tw_session_destroy(session);
  tw_module_close(module);
}

}  // namespace
