// Whether a sanitizer build sees what it is for: without this, "no findings" says nothing. Each
// planted bug ends a process of its own; builds without a sanitizer have nothing to show.
#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace tilewright {
namespace {

class SanitizerControlTest : public testing::Test {
 protected:
  SanitizerControlTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

#ifdef __SANITIZE_THREAD__

void CountOnTwoThreads(int* count) {
  std::thread other([count] {
    for (int i = 0; i < 1000; ++i) ++*count;
  });
  for (int i = 0; i < 1000; ++i) ++*count;
  other.join();
}

TEST_F(SanitizerControlTest, ARaceIsFound) {
  EXPECT_DEATH(
      {
        int count = 0;
        CountOnTwoThreads(&count);
        fprintf(stderr, "counted %d\n", count);
      },
      "data race");
}

// The settings that keep the system's gRPC quiet must not keep what its threads do in our code
// quiet, too. They meet first, without an order between them: gRPC's own locks could give one.
TEST_F(SanitizerControlTest, ARaceBetweenThreadsThatServeQueuesIsFound) {
  EXPECT_DEATH(
      {
        auto count = std::make_unique<int>(0);
        std::atomic<int> served = 0;
        std::vector<std::thread> servers;
        for (int i = 0; i < 2; ++i) {
          servers.emplace_back([&count, &served] {
            grpc::CompletionQueue queue;
            grpc::Alarm alarm;
            alarm.Set(&queue, gpr_now(GPR_CLOCK_MONOTONIC), &alarm);
            void* tag = nullptr;
            bool ok = false;
            if (!queue.Next(&tag, &ok)) return;
            served.fetch_add(1, std::memory_order_relaxed);
            while (served.load(std::memory_order_relaxed) < 2) std::this_thread::yield();
            for (int j = 0; j < 1000; ++j) ++*count;
          });
        }
        for (std::thread& server : servers) server.join();
        fprintf(stderr, "counted %d\n", *count);
      },
      "data race");
}

#elif defined(__SANITIZE_ADDRESS__)

TEST_F(SanitizerControlTest, AUseAfterFreeIsFound) {
  EXPECT_DEATH(
      {
        auto number = std::make_unique<int>(7);
        const volatile int* freed = number.get();
        number.reset();
        fprintf(stderr, "read %d\n", *freed);
      },
      "heap-use-after-free");
}

TEST_F(SanitizerControlTest, AnOverflowIsFound) {
  EXPECT_DEATH(
      {
        volatile int number = 0x7fffffff;
        number = number + 1;
        fprintf(stderr, "counted to %d\n", number);
      },
      "signed integer overflow");
}

#else

TEST_F(SanitizerControlTest, OnlySanitizerBuilds) {
  GTEST_SKIP() << "[SKIP] not a sanitizer build (preset asan or tsan)";
}

#endif

}  // namespace
}  // namespace tilewright
