#include "deploy/support/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::support {
namespace {

TEST(Parallel, EachPieceIsDoneOnce) {
  for (const size_t count : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> done(count);
    const absl::Status status = ForEachInParallel(count, [&] {
      return PieceOfWork([&](size_t i) {
        ++done[i];
        return absl::OkStatus();
      });
    });
    EXPECT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(done[i], 1) << i;
  }
}

// Whoever is faster: a later piece fails at once, an earlier one only when it has seen that.
TEST(Parallel, TheErrorOfTheFirstPositionIsReturned) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "[SKIP] one processor";
  std::atomic<bool> later_failed{false};
  std::atomic<int> begun{0};
  const absl::Status status = ForEachInParallel(1000, [&] {
    return PieceOfWork([&](size_t i) {
      ++begun;
      if (i == 1) {
        later_failed = true;
        return InvalidArgument("test.later", "of the second piece");
      }
      while (!later_failed) std::this_thread::yield();
      return InvalidArgument("test.first", "of piece " + std::to_string(i));
    });
  });
  EXPECT_EQ(Slug(status), "test.first");
  EXPECT_NE(status.message().find("of piece 0"), std::string_view::npos) << status;
  EXPECT_LT(begun, 1000);  // none is begun after an error
}

TEST(Parallel, EachThreadHasItsOwnState) {
  struct Owned {
    std::thread::id thread = std::this_thread::get_id();
    int pieces = 0;
  };
  std::atomic<int> foreign{0}, made{0};
  const absl::Status status = ForEachInParallel(500, [&]() -> absl::StatusOr<PieceOfWork> {
    ++made;
    return [&, owned = std::make_shared<Owned>()](size_t) {
      foreign += owned->thread != std::this_thread::get_id();
      ++owned->pieces;
      return absl::OkStatus();
    };
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(foreign, 0);
  EXPECT_GE(made, 1);
  EXPECT_LE(made, static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
}

TEST(Parallel, WhatCannotBeMadeIsAnError) {
  const absl::Status status = ForEachInParallel(
      3, []() -> absl::StatusOr<PieceOfWork> { return Internal("test.make", "no model"); });
  EXPECT_EQ(Slug(status), "test.make");
}

}  // namespace
}  // namespace tilewright::support
