// Running passes: checks between them, dumps, and the command that repeats a failure.
#include <algorithm>
#include <string>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/verify.h"
#include "compiler/transform/passes.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"

namespace tilewright::transform {
namespace {

std::string Numbered(size_t index, std::string_view name) {
  std::string number = std::to_string(index);
  if (number.size() < 2) number = "0" + number;
  return number + "_" + std::string(name) + ".tir";
}

// What to type to see the failure again, given the function before the pass in a file.
std::string Reproducer(const std::string& file, const PassRow& pass, const PassContext& ctx) {
  std::string command = "tilewright-opt " + file + " --passes=" + std::string(pass.name) +
                        " --target=" + ctx.target.ToString() + " --verify-each";
  if (!ctx.test_miscompile.empty()) command += " --test-miscompile=" + ctx.test_miscompile;
  return command;
}

absl::Status Failed(const absl::Status& status, const Function& before, const PassRow& pass,
                    size_t index, const PassContext& ctx) {
  std::string file = before.name + ".tir";
  if (!ctx.dump_dir.empty()) {
    file = support::PathJoin(ctx.dump_dir, "failed_" + Numbered(index, pass.name));
    // The first error counts, also when the dump cannot be written.
    (void)support::WriteFileAtomic(file, ir::Print(before));
  }
  std::string text = "pass " + std::string(pass.name) + " on " + before.name;
  absl::Status with_pass = support::WithContext(status, text);
  return support::MakeError(
      status.code(), support::Slug(with_pass),
      support::Detail(with_pass) + "; reproduce: " + Reproducer(file, pass, ctx));
}

absl::Status DumpPass(const Function& before, const Function& after, size_t index,
                      std::string_view name, const PassContext& ctx) {
  std::string text = ir::Print(after);
  if (index > 0 && text == ir::Print(before)) text = "(unchanged)\n";
  return support::WriteFileAtomic(support::PathJoin(ctx.dump_dir, Numbered(index, name)), text);
}

}  // namespace

absl::StatusOr<Function> RunPipeline(Function f, std::span<const PassRow> passes,
                                     const PassContext& ctx) {
  if (!ctx.dump_dir.empty()) {
    TW_TRY(support::MakeDirs(ctx.dump_dir));
    TW_TRY(DumpPass(f, f, 0, "input", ctx));
  }
  size_t index = 0;
  for (const PassRow& pass : passes) {
    ++index;
    absl::StatusOr<Function> after = pass.run(f, ctx);
    if (!after.ok()) return Failed(after.status(), f, pass, index, ctx);
    if (ctx.verify_each) {
      absl::Status valid = ir::Verify(*after);
      if (!valid.ok()) {
        absl::Status bug =
            support::Internal("transform.pass.malformed", support::StatusText(valid));
        return Failed(bug, f, pass, index, ctx);
      }
    }
    if (!ctx.dump_dir.empty()) TW_TRY(DumpPass(f, *after, index, pass.name, ctx));
    f = *std::move(after);
  }
  return f;
}

}  // namespace tilewright::transform
