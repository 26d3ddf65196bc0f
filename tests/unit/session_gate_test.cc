#include "deploy/runtime/session_gate.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "deploy/support/status.h"
#include "gtest/gtest.h"

namespace tilewright::runtime {
namespace {

TEST(SessionGateTest, OneThreadAtATimeIsInside) {
  SessionGate gate;
  constexpr int kThreads = 4;
  constexpr int kRounds = 20000;
  int inside = 0;  // not atomic: the thread sanitizer sees it if the gate lets two threads in
  int rounds = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const SessionTurn turn(gate, Overlap::kWait);
        ASSERT_TRUE(turn.status().ok()) << turn.status();
        ASSERT_EQ(++inside, 1);
        ++rounds;
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rounds, kThreads * kRounds);
}

TEST(SessionGateTest, AHeldGateRefusesWhoDoesNotWait) {
  SessionGate gate;
  {
    const SessionTurn turn(gate, Overlap::kRefuse);
    ASSERT_TRUE(turn.status().ok());
    const SessionTurn second(gate, Overlap::kRefuse);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(support::Slug(second.status()), "runtime.session.busy");
  }
  EXPECT_TRUE(SessionTurn(gate, Overlap::kRefuse).status().ok()) << "a refusal leaves no trace";
}

TEST(SessionGateTest, CloseSendsWaitersAwayAndWaitsForTheHolder) {
  SessionGate gate;
  ASSERT_TRUE(gate.Enter(Overlap::kWait).ok());
  absl::Status waited;
  std::atomic<bool> closed{false};
  std::thread waiter([&] { waited = gate.Enter(Overlap::kWait); });
  std::thread closer([&] {
    gate.Close();
    closed = true;
  });
  waiter.join();  // while the gate is held
  EXPECT_EQ(support::Slug(waited), "runtime.session.closed");
  EXPECT_FALSE(closed.load());
  gate.Leave();
  closer.join();
}

TEST(SessionGateTest, AChildOfForkDoesNotWaitForItsParent) {
  SessionGate gate;
  ASSERT_TRUE(gate.Enter(Overlap::kWait).ok());
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends a child that hangs
    const absl::Status status = gate.Enter(Overlap::kWait);
    gate.Close();
    _exit(support::Slug(status) == "runtime.session.forked" ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  gate.Leave();
}

}  // namespace
}  // namespace tilewright::runtime
