#include "tests/support/assembly.h"

#include "compiler/codegen/codegen.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "tests/support/run_compiled.h"

namespace tilewright::tests {

std::string AssemblyOf(const ir::Function& f, const target::Target& target) {
  const auto lowered = LowerChecked(f, target);
  TW_CHECK(lowered.ok()) << support::StatusText(lowered.status());
  const auto folder = support::TempDir::Create();
  TW_CHECK(folder.ok()) << support::StatusText(folder.status());
  const auto artifact = codegen::Generate({*lowered}, target, {.dump_dir = folder->path()});
  TW_CHECK(artifact.ok()) << support::StatusText(artifact.status());
  const auto text = support::ReadFile(folder->File(f.name + ".s"), 1 << 24);
  TW_CHECK(text.ok()) << support::StatusText(text.status());
  return *text;
}

}  // namespace tilewright::tests
