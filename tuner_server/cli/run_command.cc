#include "tuner_server/cli/run_command.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "deploy/module/found_vars.h"
#include "deploy/module/module_file.h"
#include "deploy/peaks/roofline.h"
#include "deploy/runtime/compare.h"
#include "deploy/runtime/tensor_io.h"
#include "deploy/security/module_signature.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/launch_profile.h"
#include "tuner_server/cli/launch_timeline.h"
#include "tuner_server/cli/layer_view.h"
#include "tuner_server/cli/module_ends.h"
#include "tuner_server/cli/module_trust.h"
#include "tuner_server/cli/own_process.h"
#include "tuner_server/cli/run_host.h"
#include "tuner_server/cli/run_sandbox.h"
#include "tuner_server/cli/table.h"
#include "tuner_server/cli/tensor_files.h"

namespace tilewright::cli {
namespace {

constexpr uint64_t kMaxSignedBytes = uint64_t{8} << 30;

class Runner {
 public:
  Runner(const RunOptions& options, const StepSink& step) : options_(options), step_(step) {}

  absl::Status Run() {
    TW_TRY(Open());
    TW_TRY(FillTensors());
    // Before a long run, unless only that tells the shapes.
    if (found_.empty()) TW_TRY(LoadExpected());
    TW_TRY(Execute());
    if (!found_.empty()) TW_TRY(LoadExpected());
    absl::Status compared = Compare();
    // A mismatch still leaves the outputs for looking at.
    if (compared.ok() || ExitCodeOf(compared) == kExitMismatch) TW_TRY(WriteOutputs());
    if (options_.format == OutputFormat::kJson) PrintJson(document_);
    return compared;
  }

 private:
  // For people; scripts get all of it as one document at the end.
  void Say(const std::string& text) const {
    if (options_.format == OutputFormat::kTable) PrintOut(text);
  }

  absl::Status Open() {
    if (options_.repeat < 1) {
      return support::InvalidArgument("cli.usage.repeat", "--repeat expects a number >= 1");
    }
    TW_ASSIGN(module::ModuleFile file, OpenFile());
    const int threads =
        options_.threads > 0 ? options_.threads : module::TargetThreads(file.manifest().target);
    step_("loading its code");
    const bool confined = options_.sandbox || !options_.bridge.empty();
    if (options_.allow_weak_sandbox && !confined) {
      return support::InvalidArgument("cli.usage.weak_sandbox",
                                      "--allow-weak-sandbox needs --sandbox or --bridge");
    }
    TW_ASSIGN(host_, confined
                         ? LoadInSandbox(std::move(file), threads,
                                         {options_.bridge, options_.allow_weak_sandbox})
                         : LoadHere(std::move(file), threads, options_.device, options_.libraries));
    tensors_ = host_->tensors();
    found_ = module::FoundVariables(host_->manifest());
    return absl::OkStatus();
  }

  absl::Status FillTensors() {
    const module::Manifest& manifest = host_->manifest();
    TW_ASSIGN(const module::Sizes minima,
              FillInputs({options_.inputs, options_.shapes, options_.seed}, manifest, tensors_));
    SayMinima(minima);
    TakeOutputs();
    return absl::OkStatus();
  }

  // The outputs and sizes as they are; with sizes that a run finds, once more behind it.
  void TakeOutputs() {
    const module::Manifest& manifest = host_->manifest();
    outputs_.clear();
    for (size_t i = 0; i < tensors_->num_outputs(); ++i) outputs_.push_back(tensors_->output(i));
    if (!manifest.open_sizes()) return;
    sizes_ = tensors_->sizes();
    if (ran_) Say(support::StrCat("found ", SizesText(sizes_)));
    if (!ran_) {
      for (const std::string& name : found_) sizes_.erase(name);
      SaySizes(manifest);
    }
    DescribeSizes(manifest);
  }

  void DescribeSizes(const module::Manifest& manifest) {
    const module::Function& main = *manifest.FindFunction("main");
    document_["sizes"] = sizes_;
    document_["size_vars"] = SizeVarsJson(manifest);
    document_["specialisations"] = SpecialisationsJson(manifest);
    document_["function"] = tensors_->function().name;
    document_["inputs"] = EndsJson(manifest, main.inputs);
    document_["outputs"] = EndsJson(manifest, main.outputs);
    for (size_t i = 0; i < tensors_->num_inputs(); ++i) {
      document_["inputs"][i]["shape"] = tensors_->input(i).shape;
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      document_["outputs"][i]["shape"] = outputs_[i].shape;
    }
  }

  void SaySizes(const module::Manifest& manifest) {
    const module::Function& main = *manifest.FindFunction("main");
    Say(support::StrCat("sizes ", SizesText(sizes_), " (", EndsText(manifest, main.inputs), " -> ",
                        EndsText(manifest, main.outputs), "; ", SizeBoundsText(manifest), ")"));
    const std::string special = SpecialisationsText(manifest);
    if (special.empty()) return;
    Say(support::StrCat("function ", tensors_->function().name, " (specialised: ", special, ")"));
  }

  // With a key, only what it released, and nothing of it runs before that is known.
  absl::StatusOr<module::ModuleFile> OpenFile() {
    const std::string key = TrustedKey(options_.key);
    if (key.empty()) return module::ModuleFile::Open(options_.module_path);
    // The bytes that are checked are those that run, though the file may change meanwhile.
    TW_ASSIGN(const std::string bytes, support::ReadFile(options_.module_path, kMaxSignedBytes));
    TW_ASSIGN(const security::DetachedSignature trusted,
              VerifyDetached(key, options_.signature, options_.module_path, bytes, {}));
    document_["key_id"] = trusted.signature.key_id;
    Say(SignedText(trusted));
    return module::ModuleFile::FromBytes(bytes);
  }

  absl::Status LoadExpected() {
    TW_ASSIGN(std::vector<NamedFile> files, ParseNamedFiles(options_.expects, "expect"));
    for (const NamedFile& file : files) {
      TW_ASSIGN(size_t index, FindTensor(outputs_, file.name, "output"));
      TW_ASSIGN(expected_[index],
                ReadTensorLike(file.path, *outputs_[index].tensor, outputs_[index].shape));
    }
    return absl::OkStatus();
  }

  absl::Status Execute() {
    step_("running it");
    const bool profile = options_.profile || !options_.trace.empty() || !options_.html.empty();
    TW_ASSIGN(const runtime::RunTimes times, host_->Execute(options_.repeat, profile));
    step_("reading its outputs");
    ran_ = true;
    if (!found_.empty()) TakeOutputs();
    SayTimes(times);
    document_["repeats"] = options_.repeat;
    document_["threads"] = host_->num_threads();
    if (profile) TW_TRY(Profile(times.launches));
    return options_.timeline.empty() ? absl::OkStatus() : DrawTimeline();
  }

  void SayTimes(const runtime::RunTimes& times) {
    const std::string key = times.virtual_cycles ? "virtual_cycles" : "latency_ms";
    const double unit = times.virtual_cycles ? 1 : 1e6;
    std::string text = key;
    for (const auto& [name, value] :
         {std::pair{"median", times.median}, {"p10", times.p10}, {"p90", times.p90}}) {
      document_[key][name] = value / unit;
      text += support::StrCat(" ", name, "=",
                              support::FormatFixed(value / unit, times.virtual_cycles ? 0 : 4));
    }
    Say(support::StrCat(text, " repeats=", options_.repeat));
    if (times.virtual_cycles && !times.launches.empty())
      Say("The board counts virtual cycles. Each one is written as a nanosecond:");
  }

  absl::Status DrawTimeline() {
    step_("looking at what the device does");
    TW_ASSIGN(const std::vector<runtime::LaunchTrace> traces, host_->Trace());
    const std::vector<LaunchTimeline> rows = Timelines(tensors_->function(), traces);
    document_["timeline"] = TimelineJson(rows);
    Say(TimelineTable(rows));
    return WriteTimelines(options_.timeline, rows, traces);
  }

  absl::Status Profile(const std::vector<double>& medians) {
    // A board is another machine.
    std::optional<peaks::Roofline> roofline;
    if (options_.bridge.empty()) {
      step_("measuring what this machine can do at most");
      roofline = peaks::Roofline::Measure(host_->num_threads());
      document_["roofline"] = RooflineJson(*roofline);
    }
    const module::Manifest& manifest = host_->manifest();
    const std::vector<LaunchProfile> launches =
        ProfileLaunches(manifest, medians, roofline, tensors_->function(), sizes_);
    document_["kernels"] = ProfileJson(launches);
    Say(ProfileTable(launches));
    if (!options_.trace.empty()) {
      TW_TRY(
          support::WriteFileAtomic(options_.trace, ProfileTrace(launches, manifest.name).dump()));
    }
    if (options_.html.empty()) return absl::OkStatus();
    const std::string sizes = sizes_.empty() ? "" : support::StrCat(", ", SizesText(sizes_));
    const std::string title = support::StrCat(manifest.name, sizes, ", ", host_->num_threads(),
                                              " threads, ", manifest.target);
    return support::WriteFileAtomic(options_.html, LayerPage(title, launches, roofline));
  }

  absl::Status Compare() {
    std::vector<std::string> wrong;
    for (const auto& [index, expected] : expected_) {
      const runtime::TensorView& view = outputs_[index];
      const int64_t count =
          static_cast<int64_t>(view.bytes) / module::DTypeBytes(view.tensor->dtype);
      const runtime::CompareResult result =
          runtime::CompareTensors(view.tensor->dtype, view.data, expected.data.data(), count,
                                  {options_.atol, options_.rtol});
      Say(support::StrCat("expect ", view.tensor->name, ": ", result.ok() ? "ok" : "MISMATCH",
                          "  max|a-e|=", result.max_abs_diff,
                          "  |a-e|/|e|=", result.relative_norm));
      document_["expected"].push_back({{"output", view.tensor->name},
                                       {"ok", result.ok()},
                                       {"max_abs_diff", result.max_abs_diff},
                                       {"relative_norm", result.relative_norm}});
      if (!result.ok()) {
        wrong.push_back(support::StrCat(view.tensor->name, ": ", runtime::CompareText(result)));
      }
    }
    if (wrong.empty()) return absl::OkStatus();
    return support::FailedPrecondition("cli.mismatch.output", support::Join(wrong, "; "));
  }

  // Everything or nothing: the files are written in a folder of their own inside the output folder,
  // then moved; a failure removes whatever was made, folders included.
  absl::Status WriteOutputs() const {
    if (options_.output_dir.empty()) return absl::OkStatus();
    const std::string made = FirstMissing(options_.output_dir);
    absl::Status status = support::MakeDirs(options_.output_dir);
    if (status.ok()) status = WriteAndMove();
    if (!status.ok() && !made.empty()) (void)support::RemoveTree(made);
    return status;
  }

  absl::Status WriteAndMove() const {
    TW_ASSIGN(const support::TempDir fresh,
              support::TempDir::Create("outputs", options_.output_dir));
    std::vector<std::string> names;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      runtime::HostTensor tensor{
          outputs_[i].tensor->name, outputs_[i].tensor->dtype, outputs_[i].shape,
          std::string(static_cast<const char*>(outputs_[i].data), outputs_[i].bytes)};
      names.push_back(support::StrCat("output_", i, ".", options_.output_format));
      TW_TRY(runtime::WriteTensorFile(fresh.File(names.back()), tensor));
    }
    for (const std::string& name : names) {
      const std::string to = support::PathJoin(options_.output_dir, name);
      if (std::rename(fresh.File(name).c_str(), to.c_str()) != 0) {
        return support::ErrnoError(errno, "cli.output.failed", to);
      }
    }
    return absl::OkStatus();
  }

  // The outermost folder of `path` that is not there yet; empty when all are.
  static std::string FirstMissing(std::string path) {
    std::string missing;
    while (!path.empty() && path != "." && path != "/" && !support::FileExists(path)) {
      missing = path;
      path = support::DirName(path);
    }
    return missing;
  }

  const RunOptions& options_;
  const StepSink& step_;
  std::unique_ptr<RunHost> host_;
  runtime::BoundTensors* tensors_ = nullptr;  // of host_
  std::vector<runtime::TensorView> outputs_;
  module::Sizes sizes_;          // of the variables of a module of open sizes
  std::set<std::string> found_;  // those that a run finds
  bool ran_ = false;
  std::map<size_t, runtime::HostTensor> expected_;
  nlohmann::json document_;
};

}  // namespace

int RunModule(const RunOptions& options) {
  const std::string what = "cannot run " + options.module_path;
  return RunInOwnProcess({"run", what, "", "run.code.crashed"}, [&](const StepSink& step) {
    return Finish("run", what, Runner(options, step).Run());
  });
}

}  // namespace tilewright::cli
