#include "compiler/codegen/link_lld.h"

#include <llvm/Support/CommandLine.h>
#include <llvm/Support/raw_ostream.h>

#include <mutex>

#include "compiler/codegen/link_elf.h"
#include "deploy/support/file.h"
#include "deploy/support/scratch_folder.h"
#include "deploy/support/status.h"

// lld resets LLVM's process-wide options at the start of each link. Another thread may emit code at
// that time, and would do so with other options (llvm_codegen.cc sets them once). This definition
// takes the place of LLVM's for lld, which is linked statically: nothing in this process needs a
// reset. tests/unit/codegen_abi_test.cc fails if a version of lld finds another way.
void llvm::cl::ResetAllOptionOccurrences() {}

namespace tilewright::codegen {
namespace {

constexpr uint64_t kMaxLinkedBytes = uint64_t{1} << 30;
constexpr uint64_t kScratchPerByte = 4;  // the object, the linked file and its draft

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

absl::StatusOr<std::string> RunLld(const lld::DriverDef& driver, std::vector<std::string> arguments,
                                   const std::string& object) {
  // Files made and removed for every candidate: on a disk they cost as much as the link itself.
  TW_ASSIGN(const support::ScratchFolder folder,
            support::ScratchFolder::Create(kLinkScratch,
                                           support::MemoryFolder(kScratchPerByte * object.size())));
  const std::string input = folder.File("kernel.o"), output = folder.File("kernel.out");
  TW_TRY(WriteScratch(input, object));
  arguments.insert(arguments.end(), {"--threads=1", "-o", output, input});
  std::vector<const char*> words;
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  std::string errors;
  llvm::raw_string_ostream error_stream(errors);
  int code = 0;
  {
    std::lock_guard<std::mutex> lock(LinkerMutex());
    const lld::Result result = lld::lldMain(words, llvm::nulls(), error_stream, driver);
    code = result.retCode;
    if (!result.canRunAgain) return support::Internal("codegen.link.crashed", error_stream.str());
  }
  if (code != 0) return support::Internal("codegen.link.failed", error_stream.str());
  return support::ReadFile(output, kMaxLinkedBytes);
}

}  // namespace tilewright::codegen
