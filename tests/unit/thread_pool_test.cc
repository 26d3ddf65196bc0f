#include "deploy/runtime/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "deploy/runtime/cpu_info.h"
#include "gtest/gtest.h"

namespace tilewright::runtime {
namespace {

struct Counts {
  std::vector<int> runs;  // one element per task: only its own task writes it
};
int32_t CountTask(void* closure, int64_t task) {
  ++static_cast<Counts*>(closure)->runs[static_cast<size_t>(task)];
  return TW_OK;
}

class PoolTest : public testing::TestWithParam<int> {};

TEST_P(PoolTest, EveryTaskRunsOnceAndItsWritesAreSeen) {
  ThreadPool pool(GetParam());
  for (const int64_t tasks : {0, 1, 2, 3, 7, 64, 1000}) {
    Counts counts{std::vector<int>(static_cast<size_t>(tasks), 0)};
    ASSERT_EQ(pool.ParallelFor(CountTask, &counts, tasks), TW_OK);
    ASSERT_EQ(counts.runs, std::vector<int>(static_cast<size_t>(tasks), 1)) << tasks << " tasks";
  }
  EXPECT_EQ(pool.ParallelFor(CountTask, nullptr, -5), TW_OK);
}

TEST_P(PoolTest, ManyShortLoopsFollowEachOther) {
  ThreadPool pool(GetParam());
  constexpr int kLoops = 5000;
  Counts counts{std::vector<int>(3, 0)};
  for (int i = 0; i < kLoops; ++i) ASSERT_EQ(pool.ParallelFor(CountTask, &counts, 3), TW_OK);
  EXPECT_EQ(counts.runs, std::vector<int>(3, kLoops));
}

TEST_P(PoolTest, AnErrorIsReturnedAndTheNextLoopIsClean) {
  ThreadPool pool(GetParam());
  const auto fail_at_ten = [](void*, int64_t task) -> int32_t { return task == 10 ? 5 : TW_OK; };
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(pool.ParallelFor(fail_at_ten, nullptr, 50), 5);
    Counts counts{std::vector<int>(20, 0)};
    ASSERT_EQ(pool.ParallelFor(CountTask, &counts, 20), TW_OK);
    ASSERT_EQ(counts.runs, std::vector<int>(20, 1));
  }
}

struct Nested {
  ThreadPool* pool;
  std::atomic<int64_t> inner{0};
};

TEST_P(PoolTest, LoopsInsideTasksRunSerially) {
  ThreadPool pool(GetParam());
  Nested nested{&pool};
  const auto outer = [](void* closure, int64_t) -> int32_t {
    auto* n = static_cast<Nested*>(closure);
    return n->pool->ParallelFor(
        [](void* c, int64_t) -> int32_t {
          ++static_cast<Nested*>(c)->inner;
          return TW_OK;
        },
        n, 10);
  };
  ASSERT_EQ(pool.ParallelFor(outer, &nested, 8), TW_OK);
  EXPECT_EQ(nested.inner.load(), 80);
}

INSTANTIATE_TEST_SUITE_P(Threads, PoolTest, testing::Values(1, 2, 3, 16));

// With more than one thread, tasks that wait for each other can only end if they run together.
TEST(ThreadPoolTest, TasksRunAtTheSameTime) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  const auto meet = [](void* closure, int64_t) -> int32_t {
    auto* count = static_cast<std::atomic<int>*>(closure);
    ++*count;
    while (count->load() < 2) {
    }
    return TW_OK;
  };
  ASSERT_EQ(pool.ParallelFor(meet, &arrived, 2), TW_OK);
  EXPECT_EQ(arrived.load(), 2);
}

// Of four tasks the first two belong to one thread. The first waits for the second, so it can only
// end if the other thread takes the second away.
TEST(ThreadPoolTest, IdleThreadsTakeTasksOfBusyOnes) {
  ThreadPool pool(2);
  for (int i = 0; i < 100; ++i) {
    std::atomic<bool> second_done{false};
    const auto body = [](void* closure, int64_t task) -> int32_t {
      auto* done = static_cast<std::atomic<bool>*>(closure);
      if (task == 1) done->store(true);
      while (task == 0 && !done->load()) {
      }
      return TW_OK;
    };
    ASSERT_EQ(pool.ParallelFor(body, &second_done, 4), TW_OK);
    ASSERT_TRUE(second_done.load());
  }
}

#if defined(__linux__)
// On which core each of two tasks runs that wait for each other, hence on two threads.
struct Meeting {
  std::atomic<int> arrived{0};
  int core[2] = {-1, -1};
};
int32_t Meet(void* closure, int64_t task) {
  auto* meeting = static_cast<Meeting*>(closure);
  ++meeting->arrived;
  while (meeting->arrived.load() < 2) {
  }
  meeting->core[task] = sched_getcpu();
  return TW_OK;
}

// The two threads begin on one core, as after a wake-up on a busy machine, and part.
TEST(ThreadPoolTest, AThreadMovesOffTheCallersCore) {
  if (UsableCores() < 2) GTEST_SKIP() << "[SKIP] one usable core";
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  std::thread([&] {  // on a thread of its own: whatever happens, the test's keeps its cores
    ThreadPool pool(2);
    int apart = 0;
    constexpr int kLoops = 50;
    for (int i = 0; i < kLoops; ++i) {
      Meeting meeting;
      ASSERT_EQ(pool.ParallelFor(Meet, &meeting, 2), TW_OK);
      apart += meeting.core[0] != meeting.core[1] ? 1 : 0;
    }
    EXPECT_GE(apart, kLoops / 2);
    cpu_set_t after;  // free to go anywhere, as before
    ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  })
      .join();
}

TEST(ThreadPoolTest, PinnedThreadsHaveACoreEach) {
  if (UsableCores() < 2) GTEST_SKIP() << "[SKIP] one usable core";
  std::thread([] {
    ThreadPool pool(2, Placement::kPinned);
    std::set<std::pair<int, int>> seen;
    for (int i = 0; i < 50; ++i) {
      Meeting meeting;
      ASSERT_EQ(pool.ParallelFor(Meet, &meeting, 2), TW_OK);
      ASSERT_NE(meeting.core[0], meeting.core[1]);
      seen.insert(std::minmax(meeting.core[0], meeting.core[1]));
    }
    EXPECT_EQ(seen.size(), 1u) << "they wander";
  }).join();
}
#endif

TEST(ThreadPoolTest, PoolsComeAndGo) {
  for (int i = 0; i < 200; ++i) {
    ThreadPool pool(1 + i % 4);
    Counts counts{std::vector<int>(5, 0)};
    if (i % 3 != 0) {
      ASSERT_EQ(pool.ParallelFor(CountTask, &counts, 5), TW_OK);
    }
  }
  EXPECT_GE(UsableCores(), 1);
}

}  // namespace
}  // namespace tilewright::runtime
