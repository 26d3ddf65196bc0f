// The LLVM back end of codegen.h: target machines, object emission, and the whole way from
// functions to a shared object.
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/llvm_emitter.h"
#include "compiler/ir/buffer_bytes.h"
#include "compiler/ir/visit.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::codegen {
namespace {

// Process-wide settings of LLVM's code generator. Strength reduction and the machine scheduler cost
// half of the compile time and make hand-shaped kernels slower, never faster.
void InitializeLlvmOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::vector<const char*> arguments = {"tilewright", "-disable-lsr", "-enable-misched=false"};
    for (const LlvmTarget& family : LlvmTargets()) {
      family.initialize();
      if (family.option != nullptr) arguments.push_back(family.option);
    }
    llvm::cl::ParseCommandLineOptions(static_cast<int>(arguments.size()), arguments.data(), "",
                                      &llvm::errs());
  });
}

// Target machines are dear to make and not safe to share between threads: they are lent.
class MachinePool {
 public:
  absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> Take(const LlvmTarget& family,
                                                            const target::Target& target) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      std::vector<std::unique_ptr<llvm::TargetMachine>>& idle = idle_[{family.triple, target.cpu}];
      if (!idle.empty()) {
        std::unique_ptr<llvm::TargetMachine> machine = std::move(idle.back());
        idle.pop_back();
        return machine;
      }
    }
    return Make(family, target);
  }
  void Return(const LlvmTarget& family, const target::Target& target,
              std::unique_ptr<llvm::TargetMachine> machine) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_[{family.triple, target.cpu}].push_back(std::move(machine));
  }
  static MachinePool& Get() {
    static MachinePool* pool = new MachinePool;
    return *pool;
  }

 private:
  static absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> Make(const LlvmTarget& family,
                                                                   const target::Target& wanted) {
    const std::string cpu = family.cpu != nullptr ? family.cpu : wanted.cpu;
    const std::string features = family.features != nullptr ? family.features(wanted) : "";
    std::string error;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(family.triple, error);
    if (target == nullptr) return support::Internal("codegen.target.missing", error);
    llvm::TargetOptions options;
    std::unique_ptr<llvm::MCSubtargetInfo> info(
        target->createMCSubtargetInfo(family.triple, "", ""));
    if (info == nullptr || !info->isCPUStringValid(cpu)) {
      return support::InvalidArgument(
          "codegen.target.unknown_cpu",
          "expected a CPU of " + std::string(family.arch) + ", found " + cpu);
    }
    std::unique_ptr<llvm::TargetMachine> machine(
        target->createTargetMachine(family.triple, cpu, features, options, family.relocation,
                                    std::nullopt, llvm::CodeGenOptLevel::Less));
    if (machine == nullptr)
      return support::Internal("codegen.target.missing", "no target machine for " + cpu);
    return machine;
  }

  std::mutex mutex_;
  // By triple and the target's CPU: LLVM changes the features of a machine by what it emits.
  std::map<std::pair<std::string, std::string>, std::vector<std::unique_ptr<llvm::TargetMachine>>>
      idle_;
};

double SecondsSince(int64_t start_ns) {
  return static_cast<double>(support::SystemClock().NowNs() - start_ns) * 1e-9;
}

absl::StatusOr<std::string> EmitFile(llvm::Module& module, llvm::TargetMachine& machine,
                                     llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, out, nullptr, type)) {
    return support::Internal("codegen.emit.unsupported", "the target machine writes no such file");
  }
  passes.run(module);
  return std::string(bytes.begin(), bytes.end());
}

std::string ModuleText(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream out(text);
  module.print(out, nullptr);
  return text;
}

absl::Status CheckFunctions(const std::vector<ir::Function>& functions) {
  for (const ir::Function& f : functions) {
    if (f.stage != ir::Stage::kFlat) {
      return support::InvalidArgument("codegen.function.not_flat",
                                      f.name + ": expected stage flat");
    }
  }
  if (functions.empty())
    return support::InvalidArgument("codegen.function.none", "expected at least one function");
  return absl::OkStatus();
}

absl::Status CheckBytes(const ir::Buffer& buffer, const std::string& function,
                        const LlvmTarget& family) {
  const std::optional<int64_t> bytes = ir::ConstantBytes(*buffer);
  if (bytes.value_or(0) <= family.most_bytes) return absl::OkStatus();
  return support::ResourceExhausted(
      "codegen.buffer.too_large",
      support::StrCat(function, ": expected buffers of at most ", family.most_bytes,
                      " bytes, which is what addresses of ", family.arch, " reach, found ",
                      buffer->name, " of ", *bytes));
}

absl::Status CheckBuffers(const std::vector<ir::Function>& functions, const LlvmTarget& family) {
  absl::Status status;
  for (const ir::Function& f : functions) {
    for (const ir::Buffer& param : f.params) TW_TRY(CheckBytes(param, f.name, family));
    ir::VisitStmts(f.body, [&](const ir::Stmt& s) {
      if (s->kind == ir::StmtKind::kAlloc && status.ok()) {
        status = CheckBytes(s->buffer, f.name, family);
      }
      return status.ok();
    });
  }
  return status;
}

absl::Status CheckThreads(const target::Target& target, const LlvmTarget& family) {
  if (family.threads || target.threads == 1) return absl::OkStatus();
  return support::Unimplemented(
      "codegen.target.threads",
      "expected threads=1, because code for " + target.arch +
          " runs on one thread, found threads=" + std::to_string(target.threads));
}

// The object file of all functions; fills the programs.
absl::StatusOr<std::string> EmitObject(const std::vector<ir::Function>& functions,
                                       const target::Target& target, const LlvmTarget& family,
                                       const CodegenOptions& options, llvm::TargetMachine& machine,
                                       Artifact* artifact) {
  llvm::LLVMContext context;
  context.setDiscardValueNames(options.dump_dir.empty());
  ModuleEmitter emitter(context, target, family);
  emitter.module().setTargetTriple(family.triple);
  emitter.module().setDataLayout(machine.createDataLayout());
  for (const ir::Function& f : functions) {
    auto workspace = emitter.AddKernel(f);
    if (!workspace.ok()) return support::WithContext(workspace.status(), f.name);
    artifact->programs.push_back(WholeFunction(f, *workspace));
  }
  std::string problem;
  llvm::raw_string_ostream problem_stream(problem);
  if (llvm::verifyModule(emitter.module(), &problem_stream)) {
    return support::Internal("codegen.llvm.malformed",
                             problem_stream.str() + "\n" + ModuleText(emitter.module()));
  }
  if (!options.dump_dir.empty()) {
    TW_TRY(WriteDump(options, functions[0].name, ".ll", ModuleText(emitter.module())));
    std::unique_ptr<llvm::Module> copy = llvm::CloneModule(emitter.module());
    TW_ASSIGN(std::string assembly, EmitFile(*copy, machine, llvm::CodeGenFileType::AssemblyFile));
    TW_TRY(WriteDump(options, functions[0].name, ".s", assembly));
  }
  return EmitFile(emitter.module(), machine, llvm::CodeGenFileType::ObjectFile);
}

}  // namespace

absl::StatusOr<Artifact> Generate(const std::vector<ir::Function>& functions,
                                  const target::Target& target, const CodegenOptions& options) {
  const LlvmTarget* family = FindLlvmTarget(target.arch);
  if (family == nullptr) {
    return support::Unimplemented(
        "codegen.target.unsupported",
        "expected a processor that LLVM makes code for, found " + target.ToString());
  }
  TW_TRY(CheckFunctions(functions));
  TW_TRY(CheckThreads(target, *family));
  TW_TRY(CheckBuffers(functions, *family));
  InitializeLlvmOnce();
  Artifact artifact;
  artifact.format = target.family().code_format;
  artifact.required_features = target.machine.FeatureList();
  int64_t start = support::SystemClock().NowNs();
  TW_ASSIGN(std::unique_ptr<llvm::TargetMachine> machine, MachinePool::Get().Take(*family, target));
  absl::StatusOr<std::string> object =
      EmitObject(functions, target, *family, options, *machine, &artifact);
  MachinePool::Get().Return(*family, target, std::move(machine));
  if (!object.ok()) return object.status();
  artifact.codegen_seconds = SecondsSince(start);
  start = support::SystemClock().NowNs();
  TW_ASSIGN(artifact.bytes, family->link(*object));
  artifact.link_seconds = SecondsSince(start);
  return artifact;
}

std::string ToolchainName() { return "llvm-" LLVM_VERSION_STRING; }

}  // namespace tilewright::codegen
