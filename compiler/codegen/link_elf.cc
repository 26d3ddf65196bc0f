#include "compiler/codegen/link_elf.h"

#include "compiler/codegen/link_lld.h"

LLD_HAS_DRIVER(elf)

namespace tilewright::codegen {

absl::StatusOr<std::string> LinkSharedObject(const std::string& object) {
  return RunLld({lld::Gnu, &lld::elf::link},
                {"ld.lld", "-shared", "--build-id=none", "--hash-style=gnu", "--strip-debug",
                 "-soname", "tilewright_kernel.so", "-z", "now", "-z", "noexecstack"},
                object);
}

}  // namespace tilewright::codegen
