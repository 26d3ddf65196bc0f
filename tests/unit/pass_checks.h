// How tests run lowering passes on small texts and look at what comes out.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/verify.h"
#include "compiler/transform/passes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/golden.h"

namespace tilewright::transform {

inline PassContext Context(const std::string& cpu = "x86-64-v3") {
  PassContext ctx;
  ctx.target = *target::ParseTarget("cpu,arch=x86_64,cpu=" + cpu);
  ctx.verify_each = true;
  return ctx;
}

inline ir::Function Parsed(const std::string& text) {
  absl::StatusOr<ir::Function> f = ir::ParseFunction(text);
  EXPECT_TRUE(f.ok()) << support::StatusText(f.status());
  EXPECT_TRUE(ir::Verify(*f).ok()) << support::StatusText(ir::Verify(*f));
  return *f;
}

inline std::vector<PassRow> Rows(const std::string& names) {
  std::vector<PassRow> rows;
  for (const std::string& name : support::Split(names, ',')) rows.push_back(*FindPass(name));
  return rows;
}

// Runs the passes, compares with tests/golden/transform/<name>.tir, interprets both.
inline void CheckGolden(const std::string& name, const std::string& passes, const std::string& text,
                        const PassContext& ctx = Context()) {
  SCOPED_TRACE(name);
  ir::Function before = Parsed(text);
  absl::StatusOr<ir::Function> after = RunPipeline(before, Rows(passes), ctx);
  ASSERT_TRUE(after.ok()) << support::StatusText(after.status());
  EXPECT_TRUE(tests::MatchesGolden("transform/" + name + ".tir", ir::Print(*after)));
  absl::Status same = tests::SameResults(before, *after);
  EXPECT_TRUE(same.ok()) << support::StatusText(same);
}

// The same at each of the sizes 1..most of the one size parameter. Returns what the passes made.
inline ir::Function CheckSizes(const std::string& passes, const ir::Function& before, int64_t most,
                               const PassContext& ctx = Context()) {
  absl::StatusOr<ir::Function> after = RunPipeline(before, Rows(passes), ctx);
  EXPECT_TRUE(after.ok()) << support::StatusText(after.status());
  if (!after.ok()) return before;
  for (int64_t n = 1; n <= most; ++n) {
    const absl::Status same = tests::SameResults(before, *after, {.sizes = {n}});
    EXPECT_TRUE(same.ok()) << n << support::StatusText(same) << ir::Print(*after);
  }
  return *after;
}

}  // namespace tilewright::transform
