#include "tests/sim/sim_search.h"

#include <utility>

#include "deploy/daemon/wire.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tests/support/tiny_module.h"

namespace tilewright::sim {

using support::StrCat;

namespace {

constexpr int kTasks = 2;
constexpr int kSpace = 400;  // candidates of a task
constexpr char kExpected[] = "expected outputs";

std::string ProgramHash(const std::string& task, const std::string& steps) {
  return support::Hex64(support::StableHash64(task + "|" + steps));
}

}  // namespace

void SimSearch::Send(const v1::BuilderRequest& request, int64_t) {
  world_->After(node_, world_->Between(5 * kMs, 300 * kMs), [this, request] {
    if (world_->Happens(faults_->search_dies)) {
      opened_ = false;
      sink_(jobs::SearchAnswered{absl::UnavailableError("builder.died: signal 9")});
      return;
    }
    sink_(jobs::SearchAnswered{Answer(request)});
  });
}

void SimSearch::Open(v1::JobOpened* opened) {
  opened_ = true;
  programs_.clear();
  TW_CHECK(support::WriteFileAtomic(support::PathJoin(dir_, "expected"), kExpected).ok());
  opened->set_model_name("Net");
  opened->set_toolchain("tc");
  for (int i = 0; i < kTasks; ++i) {
    v1::BuilderTask* task = opened->add_tasks();
    task->set_name(StrCat("task", i));
    task->set_hash(StrCat("h", i));
    task->set_weight(i + 1);
    task->set_flops(1000);
    task->set_canonical_text(StrCat("text of ", i));
    task->set_default_steps("default");
    task->set_default_program_hash(ProgramHash(task->hash(), "default"));
  }
}

void SimSearch::MakeChecks(const v1::MakeChecks& checks, v1::ChecksMade* made) {
  for (const std::string& hash : checks.tasks()) {
    v1::BuilderTask* task = made->add_tasks();
    task->set_hash(hash);
    task->set_expected_output_path("expected");
    *task->mutable_expected_output() =
        daemon::MakeDigest(support::Sha256Hex(kExpected), sizeof(kExpected) - 1);
  }
}

void SimSearch::Pick(const v1::Ask& ask, v1::Asked* asked) {
  std::set<std::string>& known = programs_[ask.task()];
  for (int i = 0; i < kSpace && asked->picks_size() < ask.count(); ++i) {
    const std::string steps = StrCat("split ", i);
    const std::string hash = ProgramHash(ask.task(), steps);
    if (!known.insert(hash).second) continue;
    v1::Candidate* pick = asked->add_picks();
    pick->set_steps(steps);
    pick->set_program_hash(hash);
    pick->set_rank(asked->picks_size());
    pick->set_considered(ask.count());
    pick->set_generated_by("draft");
    pick->set_proposed_by("prior");
  }
}

v1::BuilderReply SimSearch::Answer(const v1::BuilderRequest& request) {
  v1::BuilderReply reply;
  if (opened_ == request.has_open_job()) world_->Fail("search: OpenJob comes first, and once");
  if (request.has_open_job()) {
    Open(reply.mutable_job_opened());
  } else if (request.has_make_checks()) {
    MakeChecks(request.make_checks(), reply.mutable_checks_made());
  } else if (request.has_tell()) {
    for (const v1::ToldRecord& record : request.tell().records()) {
      programs_[record.task()].insert(record.program_hash());
    }
    reply.mutable_told();
  } else if (request.has_ask()) {
    Pick(request.ask(), reply.mutable_asked());
  } else if (request.has_compile_module()) {
    const v1::CompileModule& compile = request.compile_module();
    const std::map<std::string, std::string> steps(compile.steps_by_task().begin(),
                                                   compile.steps_by_task().end());
    std::string text;
    for (const auto& [task, one] : steps) text += task + ":" + one + ";";
    const std::string bytes = tests::TinyModule(text);
    TW_CHECK(support::WriteFileAtomic(compile.output_path(), bytes).ok());
    v1::ModuleCompiled* compiled = reply.mutable_module_compiled();
    compiled->set_path(compile.output_path());
    *compiled->mutable_digest() =
        daemon::MakeDigest(support::Sha256Hex(bytes), static_cast<int64_t>(bytes.size()));
  } else {
    world_->Fail("search: a request that no simulated job makes");
  }
  return reply;
}

void SimBuilds::Start(int64_t trial, const v1::Build& request) {
  world_->After(node_, world_->Between(20 * kMs, 500 * kMs), [this, trial, request] {
    jobs::BuildEnded ended;
    ended.trial = trial;
    ended.outcome = log::Outcome::kBuildError;
    if (world_->Happens(faults_->build_crashes)) {
      ended.crashed = true;
      ended.error = "builder.died: signal 11";
    } else if (world_->Happens(faults_->build_fails)) {
      ended.error = "codegen.something.bad: expected x, found y";
    } else {
      const std::string bytes = request.task_canonical_text() + "|" + request.steps();
      TW_CHECK(support::WriteFileAtomic(request.output_path(), bytes).ok());
      ended.outcome = log::Outcome::kOk;
      ended.built.set_outcome(v1::OK);
      ended.built.set_artifact_path(request.output_path());
    }
    sink_(std::move(ended));
  });
}

}  // namespace tilewright::sim
