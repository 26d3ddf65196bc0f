// A stand-in for tilewright-builder: the same frames, no compiler. Two tasks; candidates are
// "split 0", "split 1" and so on; what is built is the smallest module there is.
//   --mode=search|build   as the real one
//   --faults              build mode: split 3 of a task crashes, split 4 is refused, split 5 hangs
//   --slow-ms=N           each Ask takes this long
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "deploy/daemon/wire.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/frame_io.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tests/support/tiny_module.h"
#include "tilewright/v1/builder.pb.h"
#include "tuner_server/search/builder_error.h"

namespace tilewright::tests {
namespace {

using support::StrCat;

constexpr size_t kMaxFrame = 64 << 20;
constexpr int kTasks = 2;
constexpr int kConsidered = 20;
constexpr int64_t kHangMs = 3'600'000;

struct State {
  bool faults = false;
  std::string state_dir;  // of the job
  int64_t slow_ms = 0;
  std::map<std::string, std::set<std::string>> known;
  std::string model;
  int rows = 0;
};

std::string ProgramHash(const std::string& task, const std::string& steps) {
  return support::Hex64(support::StableHash64(task + "|" + steps));
}

void Open(const v1::OpenJob& open, v1::BuilderReply* reply) {
  const auto model = support::ReadFile(open.model_path(), kMaxFrame);
  if (!model.ok() || model->substr(0, 5) != "model") {
    reply->mutable_error()->set_code(3);
    reply->mutable_error()->set_message("onnx.parse.invalid: not a model");
    return;
  }
  v1::JobOpened* opened = reply->mutable_job_opened();
  opened->set_model_name("Fake Net");
  opened->set_toolchain("fake-1");
  for (int i = 0; i < kTasks; ++i) {
    v1::BuilderTask* task = opened->add_tasks();
    task->set_name(StrCat("t", i));
    task->set_hash(support::Sha256Hex(StrCat("task ", i)));
    task->set_weight(i + 1);
    task->set_flops(1e6);
    task->set_canonical_text(StrCat("text ", i));
    task->set_default_steps("default");
    task->set_default_program_hash(ProgramHash(task->hash(), "default"));
  }
}

// What a disk refuses is answered for as the real builder does.
bool WriteFile(const std::string& path, const std::string& bytes, v1::BuilderReply* reply) {
  const absl::Status written = support::WriteFileAtomic(path, bytes);
  if (!written.ok()) *reply->mutable_error() = search::ToBuilderError(written);
  return written.ok();
}

void MakeChecks(const v1::MakeChecks& checks, const std::string& state_dir,
                v1::BuilderReply* reply) {
  for (const std::string& hash : checks.tasks()) {
    const std::string expected = "expected " + hash;
    const std::string path = support::PathJoin(state_dir, "expected-" + hash);
    if (!WriteFile(path, expected, reply)) return;
    v1::BuilderTask* task = reply->mutable_checks_made()->add_tasks();
    task->set_hash(hash);
    task->set_expected_output_path(path);
    *task->mutable_expected_output() =
        daemon::MakeDigest(support::Sha256Hex(expected), static_cast<int64_t>(expected.size()));
  }
}

void Ask(const v1::Ask& ask, State* state, v1::Asked* asked) {
  support::SleepMs(state->slow_ms);
  std::set<std::string>& known = state->known[ask.task()];
  for (int i = 0; asked->drafts_size() < kConsidered; ++i) {
    const std::string steps = StrCat("split ", i);
    const std::string hash = ProgramHash(ask.task(), steps);
    if (known.count(hash) != 0) continue;
    v1::Draft* draft = asked->add_drafts();
    draft->set_steps(steps);
    draft->set_program_hash(hash);
    draft->set_rank(asked->drafts_size());
    draft->set_predicted(1.0 / asked->drafts_size());
    draft->add_features(static_cast<float>(i));
    if (asked->picks_size() == ask.count()) continue;
    known.insert(hash);
    draft->set_picked(true);
    v1::Candidate* pick = asked->add_picks();
    pick->set_steps(steps);
    pick->set_program_hash(hash);
    pick->set_rank(draft->rank());
    pick->set_considered(kConsidered);
    pick->set_generated_by("draft");
    pick->set_proposed_by(state->model.empty() ? "prior" : "model");
    pick->set_model_id(state->model);
    pick->add_features(static_cast<float>(i));
  }
}

void Compile(const v1::CompileModule& compile, v1::BuilderReply* reply) {
  const std::map<std::string, std::string> steps(compile.steps_by_task().begin(),
                                                 compile.steps_by_task().end());
  std::string text;
  for (const auto& [task, one] : steps) text += task.substr(0, 8) + ":" + one + ";";
  const std::string bytes = TinyModule(text);
  if (!WriteFile(compile.output_path(), bytes, reply)) return;
  reply->mutable_module_compiled()->set_path(compile.output_path());
  *reply->mutable_module_compiled()->mutable_digest() =
      daemon::MakeDigest(support::Sha256Hex(bytes), static_cast<int64_t>(bytes.size()));
}

void Build(const v1::Build& build, const State& state, v1::BuilderReply* reply) {
  if (state.faults && build.steps() == "split 3") std::abort();
  if (state.faults && build.steps() == "split 5") support::SleepMs(kHangMs);
  v1::Built* built = reply->mutable_built();
  if (state.faults && build.steps() == "split 4") {
    built->set_outcome(v1::BUILD_ERROR);
    built->set_error("codegen.fake.refused: expected something, found split 4");
    return;
  }
  const std::string bytes = TinyModule(build.task_canonical_text() + "|" + build.steps());
  if (!WriteFile(build.output_path(), bytes, reply)) return;
  built->set_outcome(v1::OK);
  built->set_artifact_path(build.output_path());
  built->set_program_hash(build.expected_program_hash());
}

v1::BuilderReply Answer(const v1::BuilderRequest& request, State* state) {
  v1::BuilderReply reply;
  reply.set_id(request.id());
  if (request.has_open_job()) {
    Open(request.open_job(), &reply);
    state->state_dir = request.open_job().state_dir();
  } else if (request.has_make_checks()) {
    MakeChecks(request.make_checks(), state->state_dir, &reply);
  } else if (request.has_tell()) {
    for (const v1::ToldRecord& record : request.tell().records()) {
      state->known[record.task()].insert(record.program_hash());
      if (record.median_ns() > 0) ++state->rows;
    }
    reply.mutable_told();
  } else if (request.has_train_model() && request.train_model().background()) {
    reply.mutable_model_trained()->set_started(true);
  } else if (request.has_train_model() || request.has_take_model()) {
    state->model = StrCat("model-", getpid(), "-", state->rows);
    v1::ModelTrained* trained = reply.mutable_model_trained();
    trained->set_trained(true);
    trained->set_replaced(true);
    trained->set_model_id(state->model);
    trained->set_model("bytes of " + state->model);
    trained->mutable_metrics()->set_train_rows(state->rows);
  } else if (request.has_load_model()) {
    state->model = request.load_model().model_id();
    reply.mutable_model_loaded();
  } else if (request.has_ask()) {
    Ask(request.ask(), state, reply.mutable_asked());
  } else if (request.has_compile_module()) {
    Compile(request.compile_module(), &reply);
  } else if (request.has_build()) {
    Build(request.build(), *state, &reply);
  }
  return reply;
}

int Run(int argc, char** argv) {
  State state;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--faults") state.faults = true;
    if (arg.substr(0, 10) == "--slow-ms=") state.slow_ms = *support::ParseInt64(arg.substr(10));
  }
  for (;;) {
    const auto frame = support::ReadFrame(0, kMaxFrame);
    if (!frame.ok()) return 0;
    v1::BuilderRequest request;
    if (!request.ParseFromString(*frame)) return 1;
    if (!support::WriteFrame(1, Answer(request, &state).SerializeAsString()).ok()) return 1;
  }
}

}  // namespace
}  // namespace tilewright::tests

int main(int argc, char** argv) { return tilewright::tests::Run(argc, argv); }
