#include "compiler/codegen/link_elf.h"

#include <lld/Common/Driver.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/raw_ostream.h>

#include <mutex>

#include "deploy/support/file.h"
#include "deploy/support/scratch_folder.h"
#include "deploy/support/status.h"

LLD_HAS_DRIVER(elf)

// lld resets LLVM's process-wide options at the start of each link. Another thread may emit code at
// that time, and would do so with other options (llvm_codegen.cc sets them once). This definition
// takes the place of LLVM's for lld, which is linked statically: nothing in this process needs a
// reset. tests/unit/codegen_abi_test.cc fails if a version of lld finds another way.
void llvm::cl::ResetAllOptionOccurrences() {}

namespace tilewright::codegen {
namespace {

constexpr uint64_t kMaxObjectBytes = uint64_t{1} << 30;
constexpr uint64_t kScratchPerByte = 4;  // the object, the library and its draft

std::mutex& LinkerMutex() {
  static std::mutex* mutex = new std::mutex;
  return *mutex;
}

// Without the care for power failures that support::WriteFileAtomic takes: it would cost more than
// the link.
absl::Status WriteScratch(const std::string& path, const std::string& bytes) {
  std::error_code error;
  llvm::raw_fd_ostream out(path, error);
  if (!error) out << bytes;
  out.close();
  if (!error) error = out.error();
  out.clear_error();
  if (!error) return absl::OkStatus();
  return support::ResourceExhausted("codegen.link.scratch", path + ": " + error.message());
}

}  // namespace

absl::StatusOr<std::string> LinkSharedObject(const std::string& object) {
  // Files made and removed for every candidate: on a disk they cost as much as the link itself.
  TW_ASSIGN(const support::ScratchFolder folder,
            support::ScratchFolder::Create(kLinkScratch,
                                           support::MemoryFolder(kScratchPerByte * object.size())));
  std::string input = folder.File("kernel.o"), output = folder.File("kernel.so");
  TW_TRY(WriteScratch(input, object));
  std::string errors;
  llvm::raw_string_ostream error_stream(errors);
  const char* arguments[] = {"ld.lld",
                             "-shared",
                             "--build-id=none",
                             "--hash-style=gnu",
                             "--strip-debug",
                             "-soname",
                             "tilewright_kernel.so",
                             "-z",
                             "now",
                             "-z",
                             "noexecstack",
                             "--threads=1",
                             "-o",
                             output.c_str(),
                             input.c_str()};
  int code = 0;
  {
    std::lock_guard<std::mutex> lock(LinkerMutex());
    lld::Result result =
        lld::lldMain(arguments, llvm::nulls(), error_stream, {{lld::Gnu, &lld::elf::link}});
    code = result.retCode;
    if (!result.canRunAgain) return support::Internal("codegen.link.crashed", error_stream.str());
  }
  if (code != 0) return support::Internal("codegen.link.failed", error_stream.str());
  return support::ReadFile(output, kMaxObjectBytes);
}

}  // namespace tilewright::codegen
