// How many heaps the C library makes for a daemon's threads, each in a process of its own: the
// number is decided once.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "deploy/daemon/heap.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <malloc.h>
#define TILEWRIGHT_HEAP_OF_GLIBC 1
#endif

namespace tilewright::daemon {
namespace {

#ifdef TILEWRIGHT_HEAP_OF_GLIBC

int CountHeaps() {
  char* text = nullptr;
  size_t size = 0;
  FILE* stream = open_memstream(&text, &size);
  malloc_info(0, stream);
  fclose(stream);
  int heaps = 0;
  const std::string_view report(text, size);
  for (size_t at = report.find("<heap nr"); at != std::string_view::npos;
       at = report.find("<heap nr", at + 1)) {
    ++heaps;
  }
  free(text);
  return heaps;
}

// Heaps in use while 24 threads hold memory at the same time.
int HeapsOfManyThreads() {
  constexpr int kThreads = 24;
  std::barrier everybody(kThreads + 1);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&everybody] {
      const std::vector<std::string> held(100, std::string(5'000, 'x'));
      everybody.arrive_and_wait();
      everybody.arrive_and_wait();
    });
  }
  everybody.arrive_and_wait();
  const int heaps = CountHeaps();
  everybody.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
  return heaps;
}

int MostHeaps() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 2, 8);
}

class HeapTest : public testing::Test {
 protected:
  HeapTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    unsetenv("MALLOC_ARENA_MAX");
    unsetenv("GLIBC_TUNABLES");
  }
};

TEST_F(HeapTest, ThreadsShareFew) {
  EXPECT_EXIT(
      {
        BoundHeaps();
        exit(HeapsOfManyThreads() <= MostHeaps() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

// Otherwise the test above shows nothing.
TEST_F(HeapTest, WithoutABoundThereAreMore) {
  EXPECT_EXIT(exit(HeapsOfManyThreads() > MostHeaps() ? 0 : 1), testing::ExitedWithCode(0), "");
}

TEST_F(HeapTest, WhatAnOperatorSetStays) {
  setenv("MALLOC_ARENA_MAX", "12", 1);
  EXPECT_EXIT(
      {
        BoundHeaps();
        exit(HeapsOfManyThreads() > MostHeaps() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
  unsetenv("MALLOC_ARENA_MAX");
}

// As much as a job leaves behind, all free but what lies last.
TEST_F(HeapTest, FreePagesGoBack) {
  constexpr size_t kBlocks = 2'000;
  constexpr size_t kBlock = 16'384;
  std::vector<char*> blocks;
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(static_cast<char*>(malloc(kBlock)));
    std::fill_n(blocks.back(), kBlock, 'x');
  }
  for (size_t i = 0; i + 1 < kBlocks; ++i) free(blocks[i]);
  const auto resident = [] {
    FILE* file = fopen("/proc/self/statm", "re");
    long total = 0;
    long pages = 0;
    const int found = fscanf(file, "%ld %ld", &total, &pages);
    fclose(file);
    return found == 2 ? pages * sysconf(_SC_PAGESIZE) : -1;
  };
  const long before = resident();
  ReturnFreeHeap();
  EXPECT_LT(resident(), before - static_cast<long>(kBlocks * kBlock / 2));
  free(blocks.back());
}

#else

TEST(HeapTest, OnlyGlibc) { GTEST_SKIP() << "[SKIP] needs the allocator of glibc"; }

#endif

}  // namespace
}  // namespace tilewright::daemon
