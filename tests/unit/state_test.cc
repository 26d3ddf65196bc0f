// Modules with state: what their manifests may say, and sessions that keep lists between runs.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "deploy/module/memory_need.h"
#include "deploy/module/module_file.h"
#include "deploy/module/module_writer.h"
#include "deploy/module/size_plan.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/status.h"
#include "tests/unit/module_fixture.h"

namespace tilewright {
namespace {

using module::Dim;
using module::Manifest;
using module::Tensor;
using runtime::Session;
using runtime::SessionOptions;
using test::kColumns;
using test::kMostEntries;

// Tensors: 0 x, 1 the list, 2 its new entries, 3 y; of "one" 4 to 7.
Manifest Complete(bool specialised = false) {
  const auto bytes = module::SerializeModule(test::ColumnSumsModule(specialised));
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  const auto file = module::ModuleFile::FromBytes(*bytes);
  EXPECT_TRUE(file.ok()) << file.status();
  return file->manifest();
}

Dim Past() { return Dim::Variable("past"); }

TEST(StateManifestTest, JsonRoundTripsAsThirdVersion) {
  const Manifest manifest = Complete();
  const auto json = module::ManifestToJson(manifest);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_NE(json->find("\"format_version\":3"), std::string::npos);
  EXPECT_NE(json->find("\"state\":{\"length\":\"past\",\"next\":\"N + past\"}"), std::string::npos)
      << *json;
  EXPECT_NE(json->find("\"entries_of\":1"), std::string::npos);
  const auto again = module::ManifestFromJson(*json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == manifest);
  EXPECT_EQ(module::NeedOf(manifest).state, kMostEntries * kColumns * 4);
}

TEST(StateManifestTest, FunctionsThatShareListsAreTheFifthVersion) {
  const Manifest manifest = Complete(/*specialised=*/true);
  const auto json = module::ManifestToJson(manifest);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_NE(json->find("\"format_version\":5"), std::string::npos);
  EXPECT_NE(json->find("\"same_list\":1"), std::string::npos);
  const auto again = module::ManifestFromJson(*json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == manifest);
  EXPECT_EQ(module::NeedOf(manifest).state, kMostEntries * kColumns * 4) << "one list";
  EXPECT_EQ(manifest.ListOf(manifest.tensors[6]), 1);
}

struct Rejection {
  const char* slug;  // without "module.manifest."
  std::function<void(Manifest*)> damage;
};

void ExpectRejected(std::span<const Rejection> rows, bool specialised) {
  int index = 0;
  for (const Rejection& row : rows) {
    SCOPED_TRACE("row " + std::to_string(index++));
    Manifest manifest = Complete(specialised);
    ASSERT_TRUE(module::ValidateManifest(manifest).ok()) << module::ValidateManifest(manifest);
    row.damage(&manifest);
    const absl::Status status = module::ValidateManifest(manifest);
    EXPECT_EQ(support::Slug(status), std::string("module.manifest.") + row.slug) << status;
  }
}

TEST(StateManifestTest, EveryBrokenRuleOfSharedListsHasItsError) {
  const Rejection rows[] = {
      {"version", [](Manifest* m) { m->format_version = module::kStateFormatVersion; }},
      {"state", [](Manifest* m) { m->tensors[5].same_list.reset(); }},  // a list of its own
      {"state", [](Manifest* m) { m->tensors[5].same_list = 0; }},
      {"state", [](Manifest* m) { m->tensors[5].same_list = 5; }},
      {"state", [](Manifest* m) { m->tensors[5].same_list = -1; }},
      {"state", [](Manifest* m) { m->tensors[5].same_list = 99; }},
      {"state", [](Manifest* m) { m->tensors[5].dtype = module::DType::kInt32; }},
      {"state", [](Manifest* m) { m->tensors[4].same_list = 1; }},
      {"state", [](Manifest* m) { m->tensors[6].same_list = 1; }},
      {"state", [](Manifest* m) { m->tensors[6].entries_of = 1; }},  // of main's shape
      {"state",
       [](Manifest* m) { m->tensors[5].shape[0] = Past() + 2, m->tensors[5].bytes += 64; }},
      {"at", [](Manifest* m) { m->functions[1].launches[1].args[0] = 1; }},
      {"state",
       [](Manifest* m) { m->functions[1].launches.erase(m->functions[1].launches.begin()); }},
  };
  ExpectRejected(rows, /*specialised=*/true);
}

TEST(StateManifestTest, EveryBrokenRuleHasItsError) {
  const Rejection rows[] = {
      {"version", [](Manifest* m) { m->format_version = module::kOpenSizesFormatVersion; }},
      {"size_var",  // nothing binds the length then
       [](Manifest* m) {
         m->state.reset();
         m->format_version = module::kOpenSizesFormatVersion;
       }},
      {"size_var", [](Manifest* m) { m->state->length = "other"; }},
      {"state", [](Manifest* m) { m->size_vars[1].min = 1; }},
      {"state", [](Manifest* m) { m->state->next = Past() + 1; }},
      {"expression", [](Manifest* m) { m->state->next = Past() + Dim::Variable("K"); }},
      {"arg", [](Manifest* m) { m->tensors[2].entries_of.reset(); }},
      {"state", [](Manifest* m) { m->tensors[2].entries_of = 0; }},
      {"state", [](Manifest* m) { m->tensors[2].entries_of = 2; }},
      {"state", [](Manifest* m) { m->tensors[2].entries_of = 99; }},
      {"state", [](Manifest* m) { m->tensors[2].entries_of = -1; }},
      {"state", [](Manifest* m) { m->tensors[2].dtype = module::DType::kInt32; }},
      {"state", [](Manifest* m) { m->tensors[0].entries_of = 1; }},
      {"tensor_offset", [](Manifest* m) { m->tensors[1].offset = 64; }},
      {"arg", [](Manifest* m) { m->functions[0].launches[0].args[2] = 1; }},  // writes the list
      {"state", [](Manifest* m) { m->functions[0].launches[0].args[2] = 3; }},
      {"state",
       [](Manifest* m) { m->functions[0].launches.push_back(m->functions[0].launches[0]); }},
      {"state",
       [](Manifest* m) { std::swap(m->functions[0].launches[0], m->functions[0].launches[1]); }},
      {"arg", [](Manifest* m) { m->functions[0].prepare = {m->functions[0].launches[0]}; }},
      {"state",  // entries of 60 bytes
       [](Manifest* m) {
         for (const int64_t id : {0, 1, 2}) m->tensors[static_cast<size_t>(id)].shape[1] = 15;
         for (Tensor& tensor : m->tensors) {
           if (tensor.shape.size() == 2) tensor.bytes = tensor.bytes / 16 * 15;
         }
       }},
      {"state",  // an output of as many rows as the list
       [](Manifest* m) {
         m->tensors[3].shape = {m->state->next};
         m->tensors[3].bytes = (test::kMostRows + kMostEntries) * 4;
       }},
  };
  ExpectRejected(rows, /*specialised=*/false);
}

std::unique_ptr<Session> SessionOf(const SessionOptions& options = {}, bool specialised = false) {
  const auto bytes = module::SerializeModule(test::ColumnSumsModule(specialised));
  auto file = module::ModuleFile::FromBytes(*bytes);
  EXPECT_TRUE(file.ok()) << file.status();
  auto loaded = runtime::LoadedModule::Load(*std::move(file));
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  auto session = Session::Create(*std::move(loaded), options);
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

// Appends `rows` rows of `value`, of which every column then has 2 · value more in its sum.
absl::Status Append(Session* session, int64_t rows, float value) {
  const std::vector<int64_t> shape = {rows, kColumns};
  TW_TRY(session->SetInputShape(0, shape));
  const std::vector<float> x(static_cast<size_t>(rows * kColumns), value);
  TW_TRY(session->SetInput(0, x.data(), x.size() * sizeof(float)));
  return session->Run();
}

float Sum(Session* session) {
  DLTensor y{};
  EXPECT_TRUE(session->GetOutput(0, &y).ok());
  return static_cast<const float*>(y.data)[kColumns - 1];
}

TEST(StateSessionTest, RunsAppend) {
  for (const bool guard : {false, true}) {
    SessionOptions options;
    options.guard_pages = guard;
    const auto session = SessionOf(options);
    EXPECT_EQ(session->state_length(), 0);
    ASSERT_TRUE(Append(session.get(), 3, 1).ok());
    EXPECT_EQ(Sum(session.get()), 6);
    ASSERT_TRUE(Append(session.get(), 1, 10).ok());
    EXPECT_EQ(Sum(session.get()), 26);
    ASSERT_TRUE(session->Run().ok()) << "the same input again";
    EXPECT_EQ(Sum(session.get()), 46);
    std::span<const TwLaunchTime> times;
    ASSERT_TRUE(session->RunProfiled(&times).ok());
    EXPECT_EQ(Sum(session.get()), 66);
    EXPECT_EQ(session->state_length(), 6);
    EXPECT_EQ(session->sizes(), (module::Sizes{{"N", 1}, {"past", 5}}));
    session->Poison(0xFF);  // the state is none of what a run computes anew
    ASSERT_TRUE(Append(session.get(), 2, 0.5F).ok());
    EXPECT_EQ(Sum(session.get()), 68);
    EXPECT_TRUE(session->CheckGuards().ok());
  }
}

// The function for one row adds to the list of the function for all numbers of rows.
TEST(StateSessionTest, FunctionsShareTheList) {
  const auto session = SessionOf({}, /*specialised=*/true);
  const std::pair<int64_t, float> runs[] = {{3, 6}, {1, 8}, {1, 10}, {2, 14}, {1, 16}};
  for (const auto& [rows, sum] : runs) {
    ASSERT_TRUE(Append(session.get(), rows, 1).ok());
    EXPECT_EQ(session->function().name, rows == 1 ? "one" : "main");
    EXPECT_EQ(Sum(session.get()), sum);
  }
  EXPECT_EQ(session->state_length(), 8);
  ASSERT_TRUE(session->ResetState(4).ok());
  ASSERT_TRUE(Append(session.get(), 1, 10).ok());
  EXPECT_EQ(Sum(session.get()), 28);
}

TEST(StateSessionTest, AFullStateTakesNoMore) {
  const auto session = SessionOf();
  EXPECT_EQ(support::Slug(Append(session.get(), kMostEntries + 1, 1)),
            "runtime.session.state_full");
  ASSERT_TRUE(Append(session.get(), kMostEntries - 1, 1).ok());
  const absl::Status full = Append(session.get(), 2, 1);
  EXPECT_EQ(support::Slug(full), "runtime.session.state_full");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("at most 20 entries in the state, found 19 and 2"),
            std::string::npos)
      << full;
  EXPECT_EQ(session->state_length(), kMostEntries - 1) << "a refused run changes nothing";
  ASSERT_TRUE(Append(session.get(), 1, 1).ok());
  EXPECT_EQ(Sum(session.get()), 2 * kMostEntries);
  EXPECT_EQ(support::Slug(session->Run()), "runtime.session.state_full");
}

TEST(StateSessionTest, ResetForgetsAllOrTheLast) {
  const auto session = SessionOf();
  ASSERT_TRUE(Append(session.get(), 4, 1).ok());
  EXPECT_EQ(support::Slug(session->ResetState(5)), "runtime.session.state_length");
  EXPECT_EQ(support::Slug(session->ResetState(-1)), "runtime.session.state_length");
  ASSERT_TRUE(session->ResetState(2).ok());
  ASSERT_TRUE(Append(session.get(), 1, 3).ok());
  EXPECT_EQ(Sum(session.get()), 10);
  ASSERT_TRUE(session->ResetState().ok());
  ASSERT_TRUE(Append(session.get(), 1, 3).ok());
  EXPECT_EQ(Sum(session.get()), 6);
}

TEST(StateSessionTest, AFailedRunLeavesTheState) {
  const auto session = SessionOf();
  ASSERT_TRUE(Append(session.get(), 2, 1).ok());
  EXPECT_EQ(support::Slug(Append(session.get(), 2, HUGE_VALF)), "runtime.run.kernel_failed");
  EXPECT_EQ(session->state_length(), 2);
  ASSERT_TRUE(Append(session.get(), 1, 1).ok());
  EXPECT_EQ(Sum(session.get()), 6);
}

TEST(StateSessionTest, SessionsHaveStatesOfTheirOwn) {
  const auto one = SessionOf(), two = SessionOf();
  ASSERT_TRUE(Append(one.get(), 2, 1).ok());
  ASSERT_TRUE(Append(two.get(), 1, 5).ok());
  EXPECT_EQ(Sum(one.get()), 4);
  EXPECT_EQ(Sum(two.get()), 10);
}

TEST(StateSessionTest, TheMemoryLimitCountsTheState) {
  const auto bytes = module::SerializeModule(test::ColumnSumsModule());
  const auto create = [&](int64_t limit) {
    auto loaded = runtime::LoadedModule::Load(*module::ModuleFile::FromBytes(*bytes));
    SessionOptions options;
    options.memory_limit_bytes = limit;
    return Session::Create(*std::move(loaded), options).status();
  };
  const int64_t state = kMostEntries * kColumns * 4;
  EXPECT_EQ(support::Slug(create(state)), "runtime.session.memory_limit");
  EXPECT_TRUE(create(2 * state).ok()) << create(2 * state);
}

}  // namespace
}  // namespace tilewright
