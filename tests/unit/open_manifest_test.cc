// Manifests with size variables: canonical JSON, and an error for each rule that is broken.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "deploy/module/found_vars.h"
#include "deploy/module/manifest.h"
#include "deploy/module/module_file.h"
#include "deploy/module/module_writer.h"
#include "deploy/module/size_plan.h"
#include "deploy/support/status.h"
#include "tests/unit/module_fixture.h"

namespace tilewright::module {
namespace {

// Digests and section sizes filled in by the writer. Tensors: 0 w, 1 packed, then x, once, twice, y
// of "main" (2 to 5) and of "four" (6 to 9).
Manifest Complete() {
  const auto bytes = SerializeModule(test::OpenRowsModule());
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  const auto file = ModuleFile::FromBytes(*bytes);
  EXPECT_TRUE(file.ok()) << file.status();
  return file->manifest();
}

Dim N() { return Dim::Variable("N"); }

TEST(OpenManifestTest, JsonRoundTripsAndIsCanonical) {
  Manifest manifest = Complete();
  manifest.size_vars.push_back({"H", 2, 8});
  manifest.tensors[2].shape = {N(), Dim::Variable("H")};
  manifest.tensors[2].bytes = test::kMostRows * 8 * 4;
  manifest.functions.pop_back();
  manifest.functions[0].launches[1].sizes.push_back((N() + Dim::Variable("H") - 1).FloorDiv(2));
  const auto json = ManifestToJson(manifest);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_NE(json->find("\"format_version\":2"), std::string::npos);
  EXPECT_NE(json->find("\"after\":[3]"), std::string::npos);
  EXPECT_NE(json->find("\"flops\":\"128*N\""), std::string::npos);
  EXPECT_NE(json->find("\"sizes\":[\"16*N\",\"(H + N + 1) / 2 - 1\"]"), std::string::npos) << *json;
  EXPECT_NE(json->find("\"workspace_bytes\":\"64*N\""), std::string::npos);
  const auto again = ManifestFromJson(*json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == manifest);
  EXPECT_EQ(*ManifestToJson(*again), *json);
  const auto specialised = ManifestFromJson(*ManifestToJson(Complete()));
  ASSERT_TRUE(specialised.ok());
  EXPECT_EQ(specialised->functions[1].at, (Sizes{{"N", 4}}));
}

TEST(OpenManifestTest, FixedModulesStayAsTheyWere) {
  const auto bytes = SerializeModule(test::DenseModule());
  const auto file = ModuleFile::FromBytes(*bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string json(file->manifest_json());
  EXPECT_NE(json.find("\"format_version\":1"), std::string::npos);
  for (const char* key : {"\"after\"", "\"at\""}) EXPECT_EQ(json.find(key), std::string::npos);
}

TEST(OpenManifestTest, ShapesAsText) {
  EXPECT_EQ(ShapeText({N(), 3, (N() + 1).FloorDiv(2), N() * 2}), "Nx3x((N+1)/2)x(2*N)");
  EXPECT_EQ(NumElements({N(), 3}), std::nullopt);
  EXPECT_TRUE(IsOpen({3, N()}));
  EXPECT_FALSE(IsOpen({3, 4}));
}

TEST(OpenManifestTest, EqualSizesRaiseTheVersion) {
  Manifest manifest = Complete();
  manifest.equal_sizes.push_back({N(), N().FloorDiv(2) * 2, "join"});
  EXPECT_EQ(support::Slug(ValidateManifest(manifest)), "module.manifest.version");
  ASSERT_TRUE(SetNeedsAtMaxima(&manifest).ok());
  EXPECT_EQ(manifest.format_version, kEqualSizesFormatVersion);
  const auto json = ManifestToJson(manifest);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto again = ManifestFromJson(*json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == manifest);
  EXPECT_TRUE(CheckEqualSizes(manifest, std::vector<int64_t>{4}).ok());
  const absl::Status odd = CheckEqualSizes(manifest, std::vector<int64_t>{5});
  EXPECT_EQ(support::Slug(odd), "module.sizes.unequal");
  EXPECT_NE(odd.message().find("join: expected sizes where N = 2*(N) / 2, found 5 and 4 at N=5"),
            std::string::npos)
      << odd;
}

// Tensors at smaller multiples have a version of their own, and begin where the last one ends.
TEST(OpenManifestTest, AlignmentRaisesTheVersionAndPlacesTensors) {
  Manifest manifest = Complete();
  manifest.functions.pop_back();
  manifest.tensors.resize(6);
  manifest.alignment = 16;
  EXPECT_EQ(support::Slug(ValidateManifest(manifest)), "module.manifest.version");
  ASSERT_TRUE(SetNeedsAtMaxima(&manifest).ok());
  EXPECT_EQ(manifest.format_version, kAlignmentFormatVersion);
  const auto json = ManifestToJson(manifest);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_NE(json->find("\"alignment\":16"), std::string::npos);
  const auto again = ManifestFromJson(*json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == manifest);
}

TEST(OpenManifestTest, PlacesAreMultiplesOfTheAlignment) {
  Manifest manifest;
  manifest.size_vars = {{"N", 1, 100}};
  for (int64_t id = 0; id < 3; ++id) {
    Tensor t{id, "", DType::kFloat32, {N()}, TensorKind::kIntermediate};
    if (id > 0) t.after = {id - 1};
    manifest.tensors.push_back(t);
  }
  manifest.tensors.push_back({3, "x", DType::kFloat32, {N()}, TensorKind::kInput});
  Function& main = manifest.functions.emplace_back();
  main.name = "main";
  main.inputs = {3};
  main.launches.emplace_back().args = {0, 1, 2};
  for (const int64_t alignment : {16, 32, 64}) {
    manifest.alignment = alignment;
    SizePlan plan;
    ASSERT_TRUE(SizePlanner(manifest, main).Plan(std::vector<int64_t>{17}, &plan).ok());
    const int64_t each = (17 * 4 + alignment - 1) / alignment * alignment;
    EXPECT_EQ(plan.tensors[1].offset, each);
    EXPECT_EQ(plan.tensors[2].offset, 2 * each);
  }
}

// Main, whose first launch also writes 8 bytes from which the run finds M: rows of `y`.
Manifest Finding() {
  Manifest manifest = Complete();
  manifest.functions.pop_back();
  manifest.tensors.resize(6);
  manifest.size_vars.push_back({"M", 0, test::kMostRows});
  const auto id = static_cast<int64_t>(manifest.tensors.size());
  manifest.tensors.push_back({id, "count", DType::kInt64, {1}, TensorKind::kOutput, 0, 8});
  Function& main = manifest.functions[0];
  main.launches[0].args.push_back(id);
  main.launches[0].num_outputs = 2;
  main.checks.push_back({id, {Dim::Variable("M")}, "choose"});
  manifest.tensors[5].shape[0] = Dim::Variable("M");
  EXPECT_TRUE(SetNeedsAtMaxima(&manifest).ok());
  return manifest;
}

TEST(OpenManifestTest, SizesThatARunFinds) {
  const Manifest manifest = Finding();
  EXPECT_EQ(manifest.format_version, kFoundSizesFormatVersion);
  const auto json = ManifestToJson(manifest);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_NE(json->find("\"expected\":[\"M\"]"), std::string::npos);
  const auto again = ManifestFromJson(*json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == manifest);
  EXPECT_EQ(FoundVariables(manifest), std::set<std::string>{"M"});
  const std::vector<FoundSize> found = FoundSizes(manifest, manifest.functions[0]);
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].variable, 1);
  EXPECT_EQ(found[0].launch, 0);
}

TEST(OpenManifestTest, FoundSizesAreFoundInTime) {
  const auto slug = [](const std::function<void(Manifest*)>& damage) {
    Manifest manifest = Finding();
    damage(&manifest);
    return std::string(support::Slug(ValidateManifest(manifest)));
  };
  EXPECT_EQ(slug([](Manifest*) {}), "");
  // Nothing finds it: another number, or an expression.
  for (const Dim& expected : {Dim(3), Dim::Variable("M") + 1, N()}) {
    const std::string found =
        slug([&](Manifest* m) { m->functions[0].checks[0].expected = {expected}; });
    EXPECT_TRUE(found == "module.manifest.size_var" || found == "module.manifest.version") << found;
  }
  // Launches need it before: the one that finds it, by a size or by a tensor.
  EXPECT_EQ(slug([](Manifest* m) { m->functions[0].launches[0].sizes[0] = Dim::Variable("M"); }),
            "module.manifest.found_size");
  EXPECT_EQ(slug([](Manifest* m) {
              m->functions[0].launches[0].args.pop_back();
              m->functions[0].launches[0].num_outputs = 1;
              m->functions[0].launches[2].args.push_back(6);
              m->functions[0].launches[2].num_outputs = 2;
            }),
            "module.manifest.found_size");
  EXPECT_EQ(slug([](Manifest* m) { m->tensors[2].shape[1] = Dim::Variable("M") + 1; }),
            "module.manifest.found_size");
  EXPECT_EQ(slug([](Manifest* m) { m->functions[0].checks[0].expected = {Dim::Variable("K")}; }),
            "module.manifest.expression");
}

// A loop around the launches from `first` to before `end`, which goes on as long as a flag holds.
Manifest FindingInLoop(int64_t first, int64_t end) {
  Manifest manifest = Finding();
  Loop loop{first, end, {{0, 0, 0}}, {}};
  for (int64_t* id : {&loop.carried[0].init, &loop.carried[0].value, &loop.carried[0].next}) {
    *id = static_cast<int64_t>(manifest.tensors.size());
    Tensor flag = manifest.tensors[2];
    flag.id = *id;
    flag.name = "flag" + std::to_string(*id);
    flag.dtype = DType::kBool;
    flag.shape = {};
    manifest.tensors.push_back(flag);
  }
  manifest.functions[0].loops = {loop};
  return manifest;
}

TEST(OpenManifestTest, WhatATripFindsIsItsOwn) {
  const auto slug = [](int64_t first, int64_t end) {
    Manifest manifest = FindingInLoop(first, end);
    const absl::Status status = CheckFoundSizes(manifest, manifest.functions[0], "main");
    return std::string(support::Slug(status));
  };
  EXPECT_EQ(slug(1, 3), "") << "what finds it comes before the loop";
  EXPECT_EQ(LoopsOfChecks(FindingInLoop(1, 3).functions[0]), std::vector<int>{-1});
  EXPECT_EQ(LoopsOfChecks(FindingInLoop(0, 1).functions[0]), std::vector<int>{0});
  EXPECT_EQ(FindingInLoop(1, 3).NeededFormatVersion(), kLoopChecksFormatVersion);
  EXPECT_EQ(slug(0, 1), "module.manifest.found_size") << "launches behind the loop need it";
  EXPECT_EQ(slug(0, 3), "module.manifest.found_size") << "an output of the function has it";
  Manifest inside = FindingInLoop(0, 3);
  inside.tensors[5].shape[0] = 4;
  EXPECT_TRUE(CheckFoundSizes(inside, inside.functions[0], "main").ok());
  inside.tensors[static_cast<size_t>(inside.functions[0].loops[0].carried[0].value)].shape = {
      Dim::Variable("M")};
  EXPECT_EQ(support::Slug(CheckFoundSizes(inside, inside.functions[0], "main")),
            "module.manifest.found_size")
      << "carried to the next trip";
}

// Of an expression that falls with the size found, the place is for its smallest.
TEST(OpenManifestTest, PlacesAreForWhateverIsFound) {
  Manifest manifest = Finding();
  manifest.tensors[5].shape[0] = Dim(test::kMostRows) - Dim::Variable("M");
  ASSERT_TRUE(SetNeedsAtMaxima(&manifest).ok());
  EXPECT_EQ(manifest.tensors[5].bytes, test::kMostRows * 16 * 4);
  const SizePlanner planner(manifest, manifest.functions[0]);
  SizePlan plan;
  ASSERT_TRUE(planner.Plan(std::vector<int64_t>{4, test::kMostRows}, &plan).ok());
  EXPECT_EQ(plan.tensors[5].shape[0], test::kMostRows);
  const int64_t offset = plan.tensors[4].offset;
  ASSERT_TRUE(planner.Resize(std::vector<int64_t>{4, 10}, &plan).ok());
  EXPECT_EQ(plan.tensors[5].shape[0], test::kMostRows - 10);
  EXPECT_EQ(plan.tensors[4].offset, offset);
  EXPECT_EQ(support::Slug(planner.Resize(std::vector<int64_t>{4, test::kMostRows + 1}, &plan)),
            "module.sizes.dimension");
}

// Where one size is found before another one, expressions over both are not known in between.
TEST(OpenManifestTest, PlacesAreForWhateverIsFoundLater) {
  Manifest manifest = Finding();
  manifest.size_vars.push_back({"L", 0, 2 * test::kMostRows});
  manifest.tensors[5].shape[0] = Dim::Variable("M") - Dim::Variable("L");
  const SizePlanner planner(manifest, manifest.functions[0]);
  SizePlan plan;
  const int64_t most = 2 * test::kMostRows;
  ASSERT_TRUE(planner.Plan(std::vector<int64_t>{4, test::kMostRows, most}, &plan).ok());
  EXPECT_EQ(plan.tensors[5].shape[0], test::kMostRows);
  ASSERT_TRUE(planner.Resize(std::vector<int64_t>{4, 10, most}, &plan, {"L"}).ok());
  EXPECT_EQ(plan.tensors[5].shape[0], 10);
  ASSERT_TRUE(planner.Resize(std::vector<int64_t>{4, 10, 3}, &plan).ok());
  EXPECT_EQ(plan.tensors[5].shape[0], 7);
  EXPECT_EQ(support::Slug(planner.Resize(std::vector<int64_t>{4, 10, 11}, &plan)),
            "module.sizes.dimension");
}

struct Rejection {
  const char* slug;  // without "module.manifest."
  std::function<void(Manifest*)> damage;
};

TEST(OpenManifestTest, EveryBrokenRuleHasItsError) {
  const Rejection rows[] = {
      {"version", [](Manifest* m) { m->format_version = kManifestFormatVersion; }},
      {"size_var", [](Manifest* m) { m->size_vars[0].min = 34; }},
      {"size_var", [](Manifest* m) { m->size_vars[0].min = -1; }},
      {"size_var", [](Manifest* m) { m->size_vars.push_back(m->size_vars[0]); }},
      {"size_var", [](Manifest* m) { m->size_vars.push_back({"M", 1, 2}); }},
      {"size_var", [](Manifest* m) { m->tensors[2].shape[0] = N() + 1; }},
      {"expression", [](Manifest* m) { m->tensors[5].shape[0] = Dim::Variable("K"); }},
      {"version", [](Manifest* m) { m->equal_sizes.push_back({N(), N() * N(), ""}); }},
      {"expression",
       [](Manifest* m) {
         m->equal_sizes.push_back({N(), Dim::Variable("K"), ""});
         m->format_version = kEqualSizesFormatVersion;
       }},
      {"equal_sizes",
       [](Manifest* m) {
         m->equal_sizes.push_back({N(), N() + 1, ""});
         m->format_version = kEqualSizesFormatVersion;
       }},
      {"at",  // at 4 rows
       [](Manifest* m) {
         m->equal_sizes.push_back({N(), N().FloorDiv(3) * 3, ""});
         m->format_version = kEqualSizesFormatVersion;
       }},
      {"expression",
       [](Manifest* m) {
         Dim power = N();
         for (int i = 0; i < 5; ++i) power = power * N();  // more factors than texts may have
         m->functions[0].launches[0].sizes[0] = power;
       }},
      {"shape", [](Manifest* m) { m->tensors[1].shape[0] = N(); }},
      {"tensor_bytes", [](Manifest* m) { m->tensors[3].bytes -= 4; }},
      {"after", [](Manifest* m) { m->tensors[3].after = {4}; }},
      {"after", [](Manifest* m) { m->tensors[4].after = {4}; }},
      {"after", [](Manifest* m) { m->tensors[4].after = {1}; }},
      {"after", [](Manifest* m) { m->tensors[4].after = {99}; }},
      {"after", [](Manifest* m) { m->tensors[4].after = {-1}; }},
      {"after", [](Manifest* m) { m->tensors[4].offset = 64; }},
      {"size", [](Manifest* m) { m->arena_bytes -= 1; }},
      {"workspace", [](Manifest* m) { m->workspace_bytes -= 1; }},
      {"functions", [](Manifest* m) { m->functions[0].name = "other"; }},
      {"functions", [](Manifest* m) { m->functions.resize(65, m->functions[1]); }},
      {"arg", [](Manifest* m) { m->functions[1].prepare[0].args[0] = 6; }},
      {"unprepared", [](Manifest* m) { m->functions[1].prepare.clear(); }},
      {"prepared_twice", [](Manifest* m) { m->functions[1].prepare[0].symbol = "tw_kernel_pack"; }},
      {"at", [](Manifest* m) { m->functions[1].at = {{"N", 34}}; }},
      {"at", [](Manifest* m) { m->functions[1].at = {{"N", 5}}; }},
      {"at", [](Manifest* m) { m->functions[1].at = {{"M", 4}}; }},
      {"at", [](Manifest* m) { m->functions[1].at = {{"M", 4}, {"N", 4}}; }},
      {"at", [](Manifest* m) { m->functions[0].at = {{"N", 4}}; }},
      {"at", [](Manifest* m) { m->functions[1].launches[0].sizes[0] = N(); }},
      {"at", [](Manifest* m) { m->functions[1].launches[1].args[0] = 3; }},
      {"at", [](Manifest* m) { m->tensors[6].name = "z"; }},
      {"at",
       [](Manifest* m) {
         m->functions.push_back(m->functions[1]);
         m->functions.back().name = "four_again";
       }},
      {"number", [](Manifest* m) { m->functions[0].launches[0].flops = 1; }},
      {"number", [](Manifest* m) { m->functions[0].launches[0].open_flops = N() - 2; }},
      {"tensor_name",
       [](Manifest* m) {
         Tensor twin = m->tensors[2];
         twin.id = static_cast<int64_t>(m->tensors.size());
         m->tensors.push_back(twin);
         m->functions[0].inputs.push_back(twin.id);
       }},
      {"measurement",
       [](Manifest* m) { m->measurement = Measurement{{{2, 1, {}, false}}, "", {}, 0}; }},
  };
  int index = 0;
  for (const Rejection& row : rows) {
    SCOPED_TRACE("row " + std::to_string(index++));
    Manifest manifest = Complete();
    ASSERT_TRUE(ValidateManifest(manifest).ok()) << ValidateManifest(manifest);
    row.damage(&manifest);
    const absl::Status status = ValidateManifest(manifest);
    EXPECT_EQ(support::Slug(status), std::string("module.manifest.") + row.slug) << status;
  }
}

// Of TwoSizesModule: "main", "four" (N), "two" (M), "both"; each has inputs x, w and outputs y, z.
TEST(OpenManifestTest, SpecialisationsInPartHaveTheirRules) {
  const auto complete = [] {
    return ModuleFile::FromBytes(*SerializeModule(test::TwoSizesModule()))->manifest();
  };
  const Manifest good = complete();
  const auto json = ManifestToJson(good);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto again = ManifestFromJson(*json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == good);
  EXPECT_EQ(again->functions[1].at, (Sizes{{"N", 4}}));
  EXPECT_EQ(again->functions[3].at, (Sizes{{"M", 2}, {"N", 4}}));
  const Rejection rows[] = {
      {"at", [](Manifest* m) { m->functions[2].at = {{"N", 4}}; }},  // as "four"
      {"at", [](Manifest* m) { m->functions[1].at = {{"N", 10}}; }},
      {"at", [](Manifest* m) { m->functions[1].at = {{"N", 0}}; }},
      {"at", [](Manifest* m) { m->functions[1].at = {{"N", 5}}; }},
      {"at", [](Manifest* m) { m->functions[1].at = {{"M", 4}}; }},
      {"at", [](Manifest* m) { m->functions[1].at = {{"K", 4}, {"N", 4}}; }},
      {"at", [](Manifest* m) { m->functions[1].launches[0].sizes[0] = N(); }},
      {"at", [](Manifest* m) { m->functions[1].launches[1].sizes[0] = N() + Dim::Variable("M"); }},
      {"at", [](Manifest* m) { m->functions[1].launches[0].workspace_bytes = N() - N() * N(); }},
      {"arg", [](Manifest* m) { m->functions[1].launches[0].args[0] = 0; }},  // main's x
      {"at", [](Manifest* m) { std::swap(m->functions[1].inputs[0], m->functions[1].inputs[1]); }},
      {"at",
       [](Manifest* m) {
         m->functions.erase(m->functions.begin() + 2);
         m->functions[1].at = {{"M", 2}};
       }},
      {"size_var", [](Manifest* m) { m->size_vars.push_back({"K", 1, 2}); }},
      {"tensor_bytes", [](Manifest* m) { m->tensors[5].bytes -= 4; }},  // w of "four"
  };
  int index = 0;
  for (const Rejection& row : rows) {
    SCOPED_TRACE("row " + std::to_string(index++));
    Manifest manifest = complete();
    row.damage(&manifest);
    const absl::Status status = ValidateManifest(manifest);
    EXPECT_EQ(support::Slug(status), std::string("module.manifest.") + row.slug) << status;
  }
  for (const char* bad : {"\"at\":{\"N\":\"4\"}", "\"at\":[4]", "\"at\":{\"N\":4.5}",
                          "\"at\":{\"N\":99999999999999999999}"}) {
    std::string text = *json;
    const std::string old = "\"at\":{\"N\":4}";
    ASSERT_NE(text.find(old), std::string::npos);
    text.replace(text.find(old), old.size(), bad);
    EXPECT_EQ(support::Slug(ManifestFromJson(text).status()), "module.manifest.type") << bad;
  }
}

TEST(OpenManifestTest, SizesOutsideTheirTypeAreRefused) {
  Manifest manifest = Complete();
  manifest.functions[0].launches[1].sizes[0] = N() - 2;  // -1 at the minimum
  EXPECT_EQ(support::Slug(ValidateManifest(manifest)), "module.manifest.dimension");
  manifest = Complete();
  manifest.size_vars[0].max = INT64_MAX;
  EXPECT_EQ(support::Slug(ValidateManifest(manifest)), "module.manifest.dimension");
  // Too large for memory but not for numbers: needs are capped.
  manifest = Complete();
  manifest.size_vars[0].max = int64_t{1} << 50;
  ASSERT_TRUE(SetNeedsAtMaxima(&manifest).ok());
  EXPECT_EQ(manifest.arena_bytes, kMaxBytes);
  EXPECT_EQ(manifest.tensors[5].bytes, kMaxBytes);
  EXPECT_TRUE(ValidateManifest(manifest).ok()) << ValidateManifest(manifest);
}

TEST(OpenManifestTest, FixedModulesHaveNoExpressions) {
  const auto slug_of = [](const std::function<void(Manifest*)>& change) {
    Manifest manifest = ModuleFile::FromBytes(*SerializeModule(test::DenseModule()))->manifest();
    change(&manifest);
    return support::Slug(ValidateManifest(manifest));
  };
  using M = Manifest*;
  EXPECT_EQ(slug_of([](M m) { m->functions[0].launches[0].sizes[0] = N(); }),
            "module.manifest.expression");
  EXPECT_EQ(slug_of([](M m) { m->functions[0].launches[0].workspace_bytes = N(); }),
            "module.manifest.expression");
  EXPECT_EQ(slug_of([](M m) { m->tensors[0].shape[0] = N(); }), "module.manifest.shape");
  EXPECT_EQ(slug_of([](M m) { m->tensors[3].after = {3}; }), "module.manifest.after");
  EXPECT_EQ(slug_of([](M m) { m->functions[0].at = {{"N", 4}}; }), "module.manifest.at");
}

TEST(OpenManifestTest, HostileExpressionsAreRefused) {
  const std::string good = *ManifestToJson(Complete());
  const auto with = [&](const std::string& expression) {
    const std::string old = "\"flops\":\"128*N\"";
    std::string json = good;
    const size_t at = json.find(old);
    EXPECT_NE(at, std::string::npos);
    return json.replace(at, old.size(), "\"flops\":\"" + expression + "\"");
  };
  EXPECT_TRUE(ManifestFromJson(with("127*N")).ok());
  std::string sum = "N";
  for (int i = 0; i < 400; ++i) sum += " + N*N";
  for (const std::string& bad : {std::string("N*128"), std::string("128 * N"), std::string("5"),
                                 std::string(""), std::string("N/0"), std::string("N*N*N*N*N*N"),
                                 std::string(40, '(') + "N", sum, std::string("128*N,")}) {
    const absl::Status status = ManifestFromJson(with(bad)).status();
    EXPECT_EQ(support::Slug(status), "module.manifest.expression") << bad << ": " << status;
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(support::Slug(ManifestFromJson(with("128*K")).status()), "module.manifest.expression");
}

// A call costs the same whatever depth its places have.
TEST(OpenManifestTest, LongChainsOfPlaces) {
  Manifest manifest = Complete();
  for (int64_t i = 0; i < 20000; ++i) {
    Tensor next = manifest.tensors[4];
    next.id = static_cast<int64_t>(manifest.tensors.size());
    next.after = {i == 0 ? 4 : next.id - 1};
    manifest.tensors.push_back(next);
  }
  EXPECT_TRUE(ValidateManifest(manifest).ok()) << ValidateManifest(manifest);
  manifest.tensors[4].after = {manifest.tensors.back().id};
  EXPECT_EQ(support::Slug(ValidateManifest(manifest)), "module.manifest.after");
}

}  // namespace
}  // namespace tilewright::module
