// When the operator's reset command may run.
#include "device_agent/reset_hook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tilewright::device_agent {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMinuteUs = int64_t{60} * 1'000'000;

v1::ResetOrder Order(const std::string& request) {
  v1::ResetOrder order;
  order.set_device("devices/d");
  order.set_request(request);
  return order;
}

ResetOptions WithCommand() {
  ResetOptions options;
  options.command = "true";
  return options;
}

TEST(ResetHookTest, AnOrderRunsOnceHoweverOftenItIsSent) {
  ResetHook hook(WithCommand(), {});
  EXPECT_TRUE(hook.OnOrder(Order("r1"), 0));
  EXPECT_EQ(hook.report().state(), v1::RESET_STATE_RUNNING);
  EXPECT_FALSE(hook.OnOrder(Order("r1"), 1));
  EXPECT_FALSE(hook.OnOrder(Order("r2"), 1)) << "one at a time";
  hook.OnEnd(absl::OkStatus(), "port 3 off, on\n");
  EXPECT_EQ(hook.report().state(), v1::RESET_STATE_DONE);
  EXPECT_THAT(hook.report().detail(), HasSubstr("port 3"));
  EXPECT_FALSE(hook.OnOrder(Order("r1"), 30 * kMinuteUs));
  EXPECT_TRUE(hook.OnOrder(Order("r2"), 30 * kMinuteUs));
  hook.OnEnd(support::DeadlineExceeded("process.run.timeout", "60 s"), "");
  EXPECT_EQ(hook.report().state(), v1::RESET_STATE_FAILED);
  EXPECT_THAT(hook.report().detail(), HasSubstr("60 s"));
  EXPECT_FALSE(hook.OnOrder(Order("r1"), 60 * kMinuteUs)) << "an old answer that came late";
  EXPECT_EQ(hook.report().request(), "r2");
}

TEST(ResetHookTest, TooSoonAndTooOftenAreRefusedWithTheReason) {
  ResetOptions options = WithCommand();
  options.max_per_day = 2;
  ResetHook hook(options, {});
  ASSERT_TRUE(hook.OnOrder(Order("r1"), 0));
  hook.OnEnd(absl::OkStatus(), "");
  EXPECT_FALSE(hook.OnOrder(Order("r2"), 9 * kMinuteUs));
  EXPECT_EQ(hook.report().state(), v1::RESET_STATE_REFUSED);
  EXPECT_EQ(hook.report().request(), "r2");
  EXPECT_THAT(hook.report().detail(), HasSubstr("60 s to wait"));
  ASSERT_TRUE(hook.OnOrder(Order("r3"), 11 * kMinuteUs));
  hook.OnEnd(absl::OkStatus(), "");
  EXPECT_FALSE(hook.OnOrder(Order("r4"), 100 * kMinuteUs));
  EXPECT_THAT(hook.report().detail(), HasSubstr("limit of 2 a day"));
  EXPECT_TRUE(hook.OnOrder(Order("r5"), 25 * 60 * kMinuteUs));
}

TEST(ResetHookTest, WithoutACommandEveryOrderIsRefused) {
  ResetHook hook({}, {});
  EXPECT_FALSE(hook.can_reset());
  EXPECT_FALSE(hook.OnOrder(Order("r1"), 0));
  EXPECT_EQ(hook.report().state(), v1::RESET_STATE_REFUSED);
}

TEST(ResetHookTest, ARestartedAgentNeitherRunsAnOrderAgainNorForgetsTheLimits) {
  ResetHook before(WithCommand(), {});
  ASSERT_TRUE(before.OnOrder(Order("r1"), 5 * kMinuteUs));
  const auto history = ResetHook::FromText(ResetHook::ToText(before.history()));
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(*history, before.history());
  ResetHook after(WithCommand(), *history);
  EXPECT_EQ(after.report().state(), v1::RESET_STATE_FAILED);
  EXPECT_FALSE(after.OnOrder(Order("r1"), 6 * kMinuteUs));
  EXPECT_FALSE(after.OnOrder(Order("r2"), 6 * kMinuteUs));
  EXPECT_EQ(after.report().state(), v1::RESET_STATE_REFUSED);
  // A clock that was set back by an hour does not block for an hour and ten minutes.
  EXPECT_FALSE(after.OnOrder(Order("r3"), -55 * kMinuteUs));
  EXPECT_TRUE(after.OnOrder(Order("r4"), -44 * kMinuteUs));
  EXPECT_EQ(support::Slug(ResetHook::FromText("soon r1\n").status()), "agent.reset.history");
}

}  // namespace
}  // namespace tilewright::device_agent
