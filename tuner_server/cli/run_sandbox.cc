#include "tuner_server/cli/run_sandbox.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/frame_io.h"
#include "deploy/support/process.h"
#include "deploy/support/strings.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::cli {
namespace {

using module::Function;
using module::Manifest;
using support::StrCat;

// Of a message, and of the module in one.
constexpr int64_t kMaxBytes = (int64_t{2} << 30) - (int64_t{1} << 20);
constexpr int64_t kLastWordsMs = 2000;

// Buffers of the module's inputs and outputs, without its code.
class Buffers final : public runtime::BoundTensors {
 public:
  Buffers(const Manifest& manifest, const Function& function) : function_(function) {
    for (const int64_t id : function.inputs) Add(manifest, id, &inputs_);
    for (const int64_t id : function.outputs) Add(manifest, id, &outputs_);
  }

  const Function& function() const override { return function_; }
  size_t num_inputs() const override { return inputs_.size(); }
  size_t num_outputs() const override { return outputs_.size(); }
  runtime::TensorView input(size_t index) const override { return View(inputs_[index]); }
  runtime::TensorView output(size_t index) const override { return View(outputs_[index]); }
  void* MutableInput(size_t index) override { return inputs_[index].data.data(); }

  const std::string& input_bytes(size_t index) const { return inputs_[index].data; }
  // The outputs of a run. data_loss (run.answer.malformed) if they are not the function's.
  absl::Status TakeOutputs(v1::ModuleRan* ran) {
    bool fits = ran->outputs_size() == static_cast<int>(outputs_.size());
    for (size_t i = 0; fits && i < outputs_.size(); ++i) {
      std::string& bytes = *ran->mutable_outputs(static_cast<int>(i));
      fits = bytes.size() == outputs_[i].data.size();
      // In place: views of it are in use.
      if (fits) std::memcpy(outputs_[i].data.data(), bytes.data(), bytes.size());
    }
    if (fits) return absl::OkStatus();
    return support::DataLoss("run.answer.malformed", "expected the outputs of the module");
  }

 private:
  struct Buffer {
    const module::Tensor* tensor;
    mutable std::string data;
  };
  static void Add(const Manifest& manifest, int64_t id, std::vector<Buffer>* to) {
    const module::Tensor& tensor = manifest.tensors[static_cast<size_t>(id)];
    to->push_back({&tensor, std::string(static_cast<size_t>(tensor.bytes), '\0')});
  }
  static runtime::TensorView View(const Buffer& buffer) {
    return {buffer.tensor, buffer.data.data(), buffer.data.size(),
            module::FixedExtents(buffer.tensor->shape)};
  }

  const Function& function_;
  std::vector<Buffer> inputs_;
  std::vector<Buffer> outputs_;
};

class SandboxHost final : public RunHost {
 public:
  static absl::StatusOr<std::unique_ptr<RunHost>> Create(module::ModuleFile file, int threads,
                                                         const SandboxPlace& place) {
    auto host = std::unique_ptr<SandboxHost>(new SandboxHost(std::move(file), place));
    TW_TRY(host->Start(threads));
    return host;
  }

  const Manifest& manifest() const override { return file_.manifest(); }
  int num_threads() const override { return threads_; }
  runtime::BoundTensors* tensors() override { return buffers_.get(); }

  absl::StatusOr<runtime::RunTimes> Execute(int repeat, bool per_launch) override {
    v1::WorkerRequest request;
    v1::RunModule* run = request.mutable_run();
    run->set_slot(kSlot);
    run->set_threads(threads_);
    run->set_repeat(repeat);
    run->set_per_launch(per_launch);
    run->set_output_bytes(output_bytes_);
    run->set_allow_unconfined(MayBeUnconfined());
    for (size_t i = 0; i < buffers_->num_inputs(); ++i) run->add_inputs(buffers_->input_bytes(i));
    TW_ASSIGN(v1::WorkerReply reply, Ask(std::move(request)));
    v1::ModuleRan* ran = reply.mutable_ran();
    TW_TRY(buffers_->TakeOutputs(ran));
    const size_t launches = per_launch ? buffers_->function().launches.size() : 0;
    if (ran->launch_ns_size() != static_cast<int>(launches)) {
      return support::DataLoss("run.answer.malformed", "expected the time of each launch");
    }
    threads_ = ran->threads();
    return runtime::RunTimes{ran->median_ns(),
                             ran->p10_ns(),
                             ran->p90_ns(),
                             {ran->launch_ns().begin(), ran->launch_ns().end()},
                             ran->value_kind() == v1::VALUE_KIND_VIRTUAL_CYCLES};
  }

  absl::StatusOr<std::vector<runtime::LaunchTrace>> Trace() override {
    return support::Unimplemented("run.timeline.sandbox",
                                  "expected a run without a sandbox, found one");
  }

 private:
  static constexpr char kSlot[] = "module";

  SandboxHost(module::ModuleFile file, SandboxPlace place)
      : file_(std::move(file)), place_(std::move(place)) {}

  bool MayBeUnconfined() const { return place_.allow_weak && !place_.bridge.empty(); }

  absl::Status Start(int threads) {
    threads_ = threads;
    TW_TRY(MakeBuffers());
    TW_TRY(StartWorker());
    v1::WorkerRequest load;
    load.mutable_load()->set_slot(kSlot);
    load.mutable_load()->set_module(std::string(file_.bytes()));
    return Ask(std::move(load)).status();
  }

  absl::Status StartWorker() {
    support::ChildOptions options;
    if (place_.bridge.empty()) {
      TW_ASSIGN(options.program, support::FindSibling("tilewright-worker"));
    } else {
      options.program = "/bin/sh";
      options.args = {"-c", place_.bridge};
    }
    options.stdin_mode = support::Stdio::kPipe;
    options.stdout_mode = support::Stdio::kPipe;
    TW_ASSIGN(worker_, support::Child::Start(options));
    v1::WorkerRequest hello;
    hello.mutable_hello()->set_device_kind("cpu");
    hello.mutable_hello()->set_threads(threads_);
    hello.mutable_hello()->set_sandbox_profile("strict");
    TW_ASSIGN(const v1::WorkerReply ready, Ask(std::move(hello)));
    const std::string_view where =
        place_.bridge.empty() ? "this machine" : "the machine behind the bridge";
    if (!ready.ready().sandboxed() && !MayBeUnconfined()) {
      return support::FailedPrecondition(
          "run.sandbox.unavailable",
          StrCat(where, " cannot confine the module's process: ", ready.ready().sandbox_detail()));
    }
    if (!ready.ready().sandbox_full() && !place_.allow_weak) {
      return support::FailedPrecondition(
          "run.sandbox.weak",
          StrCat(where, " confines the module's process only in part. Missing: ",
                 ready.ready().sandbox_missing()));
    }
    return absl::OkStatus();
  }

  absl::Status MakeBuffers() {
    const auto main =
        std::find_if(manifest().functions.begin(), manifest().functions.end(),
                     [](const Function& function) { return function.name == "main"; });
    if (main == manifest().functions.end()) {
      return support::InvalidArgument("runtime.session.function", "the module has no 'main'");
    }
    int64_t input_bytes = 0;
    for (const auto* ids : {&main->inputs, &main->outputs}) {
      for (const int64_t id : *ids) {
        const int64_t bytes = manifest().tensors[static_cast<size_t>(id)].bytes;
        int64_t& sum = ids == &main->inputs ? input_bytes : output_bytes_;
        if (bytes < 0 || bytes > kMaxBytes - sum) return TooLarge("its inputs or outputs");
        sum += bytes;
      }
    }
    if (static_cast<int64_t>(file_.bytes().size()) > kMaxBytes) return TooLarge("the module");
    buffers_ = std::make_unique<Buffers>(manifest(), *main);
    return absl::OkStatus();
  }

  static absl::Status TooLarge(std::string_view what) {
    return support::ResourceExhausted(
        "run.sandbox.too_large",
        StrCat("expected at most ", kMaxBytes, " bytes with --sandbox, found more: ", what));
  }

  // The answer, which is of the kind that belongs to the request.
  absl::StatusOr<v1::WorkerReply> Ask(v1::WorkerRequest request) {
    const v1::WorkerRequest::RequestCase asked = request.request_case();
    request.set_id(++last_id_);
    const absl::Status sent = support::WriteFrame(worker_->stdin_fd(), request.SerializeAsString());
    if (!sent.ok()) return WorkerDied(sent);
    auto frame = support::ReadFrame(worker_->stdout_fd(), kMaxBytes);
    if (!frame.ok()) return WorkerDied(frame.status());
    v1::WorkerReply reply;
    const bool read = reply.ParseFromString(*frame) && reply.id() == request.id();
    if (read && reply.has_error()) {
      return support::DataLoss(reply.error().slug(), reply.error().detail());
    }
    const bool fits = (asked == v1::WorkerRequest::kHello && reply.has_ready()) ||
                      (asked == v1::WorkerRequest::kLoad && reply.has_loaded()) ||
                      (asked == v1::WorkerRequest::kRun && reply.has_ran());
    if (read && fits) return reply;
    return support::DataLoss("run.answer.malformed", "expected an answer of the worker");
  }

  absl::Status WorkerDied(const absl::Status& why) const {
    const bool bridged = !place_.bridge.empty();
    (void)worker_->Wait(kLastWordsMs);  // then what it said on standard error is complete
    return support::Internal(bridged ? "run.bridge.failed" : "run.sandbox.failed",
                             StrCat(bridged ? "the bridge" : "tilewright-worker", " ended: ",
                                    support::StatusText(why), "; ", worker_->stderr_tail()));
  }

  const module::ModuleFile file_;
  const SandboxPlace place_;
  std::unique_ptr<Buffers> buffers_;
  std::unique_ptr<support::Child> worker_;
  int threads_ = 1;
  int64_t output_bytes_ = 0;
  uint64_t last_id_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RunHost>> LoadInSandbox(module::ModuleFile file, int threads,
                                                       const SandboxPlace& place) {
  if (file.manifest().open_sizes()) {
    return support::Unimplemented(
        "run.sandbox.open_sizes",
        "expected a module of fixed sizes in a sandbox, found size variables");
  }
  for (const module::CodeObject& code : file.manifest().code) {
    if (code.device.empty()) continue;
    return support::Unimplemented(
        "run.sandbox.device",
        StrCat("expected code for the processor, found some for ", code.device,
               ", whose driver needs more of the system than the sandbox permits"));
  }
  return SandboxHost::Create(std::move(file), threads, place);
}

}  // namespace tilewright::cli
