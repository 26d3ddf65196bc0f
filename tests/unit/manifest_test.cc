#include "deploy/module/manifest.h"

#include <functional>
#include <string>

#include "deploy/module/launch_names.h"
#include "deploy/module/module_file.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "gtest/gtest.h"
#include "tests/unit/module_fixture.h"

namespace tilewright::module {
namespace {

// A valid manifest with every part present, sizes and digests filled in by the writer.
Manifest Complete() {
  const auto bytes = SerializeModule(test::FormatModule());
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  const auto file = ModuleFile::FromBytes(*bytes);
  EXPECT_TRUE(file.ok()) << file.status();
  return file->manifest();
}

TEST(ManifestTest, JsonRoundTripsAndIsCanonical) {
  const Manifest manifest = Complete();
  const auto json = ManifestToJson(manifest);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto again = ManifestFromJson(*json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == manifest);
  EXPECT_EQ(*ManifestToJson(*again), *json);
  EXPECT_EQ(json->find(": "), std::string::npos) << "no spaces between tokens";
  EXPECT_LT(json->find("\"arena_bytes\""), json->find("\"code\"")) << "keys are sorted";
}

// A check looks at an i64 tensor of its own, which a launch writes.
Manifest WithCheck() {
  Manifest manifest = Complete();
  Tensor found;
  found.id = static_cast<int64_t>(manifest.tensors.size());
  found.name = "found";
  found.dtype = DType::kInt64;
  found.shape = {Dim(2)};
  found.kind = TensorKind::kOutput;
  found.bytes = 16;
  manifest.tensors.push_back(found);
  manifest.functions[0].checks = {{found.id, {2, 3}, "node \"flat\" (Reshape)"}};
  manifest.functions[0].launches[0].args.push_back(found.id);
  manifest.functions[0].launches[0].num_outputs += 1;
  return manifest;
}

TEST(ManifestTest, SizeChecks) {
  EXPECT_EQ(ManifestToJson(Complete())->find("checks"), std::string::npos);
  const auto json = ManifestToJson(WithCheck());
  ASSERT_TRUE(json.ok()) << json.status();
  const auto again = ManifestFromJson(*json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == WithCheck());
  const auto slug_of = [](const std::function<void(Manifest*)>& change) {
    Manifest manifest = WithCheck();
    change(&manifest);
    return support::Slug(ValidateManifest(manifest));
  };
  using M = Manifest*;
  EXPECT_EQ(slug_of([](M m) { m->functions[0].checks[0].expected = {2}; }),
            "module.manifest.check");
  EXPECT_EQ(slug_of([](M m) { m->functions[0].checks[0].tensor = 0; }), "module.manifest.check");
  EXPECT_EQ(slug_of([](M m) { m->functions[0].checks[0].tensor = 99; }), "module.manifest.check");
  EXPECT_EQ(slug_of([](M m) { m->functions[0].checks.push_back(m->functions[0].checks[0]); }),
            "module.manifest.function_ends");
  EXPECT_EQ(slug_of([](M m) {
              m->functions[0].launches[0].args.pop_back();
              m->functions[0].launches[0].num_outputs -= 1;
            }),
            "module.manifest.unwritten_output");
}

Tensor BoolTensor(const Manifest& manifest, std::vector<Dim> shape, int64_t offset) {
  Tensor tensor;
  tensor.id = static_cast<int64_t>(manifest.tensors.size());
  tensor.dtype = DType::kBool;
  tensor.bytes = *NumElements(shape);
  tensor.shape = std::move(shape);
  tensor.offset = offset;
  return tensor;
}

// Its launch writes whether it runs again; what it wrote is stacked.
Manifest WithLoop() {
  Manifest manifest = Complete();
  manifest.format_version = kLoopsFormatVersion;
  Loop loop{0, 1, {{0, 0, 0}}, {{0, 0}}};
  for (int64_t* id : {&loop.carried[0].init, &loop.carried[0].value, &loop.carried[0].next}) {
    manifest.tensors.push_back(BoolTensor(manifest, {}, manifest.arena_bytes));
    manifest.arena_bytes += kTensorAlignment;
    *id = manifest.tensors.back().id;
  }
  manifest.tensors.push_back(BoolTensor(manifest, {4}, manifest.arena_bytes));
  manifest.arena_bytes += kTensorAlignment;
  loop.stacked[0] = {loop.carried[0].next, manifest.tensors.back().id};
  manifest.functions[0].launches[0].args.push_back(loop.carried[0].next);
  manifest.functions[0].launches[0].num_outputs += 1;
  manifest.functions[0].loops = {loop};
  return manifest;
}

TEST(ManifestTest, Loops) {
  EXPECT_EQ(ManifestToJson(Complete())->find("loops"), std::string::npos);
  const auto json = ManifestToJson(WithLoop());
  ASSERT_TRUE(json.ok()) << json.status();
  const auto again = ManifestFromJson(*json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == WithLoop());
  using L = Loop*;
  const auto slug_of = [](const std::function<void(Manifest*, L)>& change) {
    Manifest manifest = WithLoop();
    change(&manifest, &manifest.functions[0].loops[0]);
    return std::string(support::Slug(ValidateManifest(manifest)));
  };
  EXPECT_EQ(slug_of([](Manifest*, L) {}), "");
  const std::string bad = "module.manifest.loop";
  EXPECT_EQ(slug_of([](Manifest*, L l) { l->first = -1; }), bad);
  EXPECT_EQ(slug_of([](Manifest*, L l) { l->end = l->first; }), bad) << "nothing to run";
  EXPECT_EQ(slug_of([](Manifest*, L l) { l->end = 99; }), bad);
  EXPECT_EQ(slug_of([](Manifest*, L l) { l->carried.clear(); }), bad) << "no condition";
  EXPECT_EQ(slug_of([](Manifest*, L l) { l->carried[0].value = 0; }), bad) << "an input";
  EXPECT_EQ(slug_of([](Manifest*, L l) { l->carried[0].next = 99; }), bad);
  EXPECT_EQ(slug_of([](Manifest*, L l) { l->carried[0].next = l->stacked[0].whole; }), bad)
      << "another size";
  EXPECT_EQ(slug_of([](Manifest*, L l) { l->stacked[0].part = l->stacked[0].whole; }), bad);
  EXPECT_EQ(slug_of([](Manifest*, L l) { l->stacked[0].whole = l->stacked[0].part; }), bad);
  // A view of the stack may have given the tensor its shape, but not another size.
  const auto stack_of = [&](std::vector<support::Dim> whole, std::vector<support::Dim> part) {
    return slug_of([&](Manifest* m, L l) {
      m->tensors[static_cast<size_t>(l->stacked[0].whole)].shape = whole;
      m->tensors.push_back(BoolTensor(*m, part, m->arena_bytes));
      m->arena_bytes += kTensorAlignment;
      l->stacked[0].part = m->tensors.back().id;
    });
  };
  EXPECT_EQ(stack_of({4}, {2}), "");
  EXPECT_EQ(stack_of({4}, {3}), bad);
  EXPECT_EQ(slug_of([](Manifest* m, L l) {
              m->tensors[static_cast<size_t>(l->carried[0].init)].dtype = DType::kInt8;
            }),
            bad);
  EXPECT_EQ(slug_of([](Manifest* m, L) { m->code[0].device = "opencl"; }), "");
  EXPECT_EQ(slug_of([](Manifest* m, L) { m->format_version = kManifestFormatVersion; }),
            "module.manifest.version");
  const auto many = [&](size_t loops, size_t places) {
    return slug_of([&](Manifest* m, L l) {
      std::vector<Launch>& launches = m->functions[0].launches;
      while (launches.size() < places) launches.push_back(launches[0]);
      std::vector<Loop> all(loops, *l);
      for (size_t i = 0; i < loops; ++i) {
        all[i].first = static_cast<int64_t>(i % places);
        all[i].end = all[i].first + 1;
      }
      m->functions[0].loops = all;
    });
  };
  EXPECT_EQ(many(64, 1), "");
  EXPECT_EQ(many(65, 1), bad) << "too many in each other";
  EXPECT_EQ(many(4096, 4096), "");
  EXPECT_EQ(many(4097, 4097), bad) << "too many";
  // Of two loops, the inner one comes first.
  const auto two = [&](int64_t first, int64_t end) {
    return slug_of([&](Manifest* m, L) {
      while (m->functions[0].launches.size() < 4) {
        m->functions[0].launches.push_back(m->functions[0].launches[0]);
      }
      Loop other = m->functions[0].loops[0];
      m->functions[0].loops[0].first = 1;
      m->functions[0].loops[0].end = 3;
      other.first = first;
      other.end = end;
      m->functions[0].loops.push_back(other);
    });
  };
  EXPECT_EQ(two(0, 4), "");
  EXPECT_EQ(two(1, 3), "");
  EXPECT_EQ(two(3, 4), "");
  EXPECT_EQ(two(2, 4), bad);
  EXPECT_EQ(two(1, 2), bad) << "inside, but later";
  EXPECT_EQ(two(0, 1), bad) << "before, but later";
}

TEST(ManifestTest, ColdInputsAreSaidOnlyWhereTheyAre) {
  Manifest manifest = Complete();
  EXPECT_EQ(ManifestToJson(manifest)->find("far"), std::string::npos);
  manifest.measurement->inputs[0].cold = true;
  const auto json = ManifestToJson(manifest);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto again = ManifestFromJson(*json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == manifest);
  std::string wrong = *json;
  wrong.replace(wrong.find("\"far\":true"), 10, "\"far\":\"yes\"");
  EXPECT_EQ(support::Slug(ManifestFromJson(wrong).status()), "module.manifest.type");
}

TEST(ManifestTest, DevicesOfCodeAreSaidOnlyWhereTheyAre) {
  Manifest manifest = Complete();
  EXPECT_EQ(ManifestToJson(manifest)->find("device"), std::string::npos);
  manifest.code[0].device = "opencl";
  const auto json = ManifestToJson(manifest);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto again = ManifestFromJson(*json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == manifest);
  manifest.code[0].device = "no word";
  EXPECT_EQ(support::Slug(ManifestToJson(manifest).status()), "module.manifest.code");
}

TEST(ManifestTest, GridsAreSaidOnlyWhereTheyAre) {
  Manifest manifest = Complete();
  EXPECT_EQ(ManifestToJson(manifest)->find("grid"), std::string::npos);
  manifest.functions[0].launches[0].grid = {16, 2, 1};
  manifest.functions[0].launches[0].group = {64, 1, 1};
  const auto json = ManifestToJson(manifest);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto again = ManifestFromJson(*json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == manifest);
  for (const std::string wrong : {"[16,2]", "[16,2,\"1\"]", "16", "[16,2,1,1]"}) {
    std::string text = *json;
    text.replace(text.find("[16,2,1]"), 8, wrong);
    EXPECT_EQ(support::Slug(ManifestFromJson(text).status()), "module.manifest.type") << wrong;
  }
}

struct Rejection {
  const char* slug;
  std::function<void(Manifest*)> damage;
};

TEST(ManifestTest, ATargetNamesItsThreads) {
  EXPECT_EQ(TargetThreads("cpu,arch=x86_64,threads=3"), 3);
  EXPECT_EQ(TargetThreads("cpu,threads=2,cpu=znver4"), 2);
  EXPECT_EQ(TargetThreads("opencl"), 1);
  EXPECT_EQ(TargetThreads("cpu,threads=many"), 1);
  EXPECT_EQ(TargetThreads("cpu,threads=-5"), 1);
  EXPECT_EQ(TargetThreads("cpu,threads=1000000000"), 1024);
}

void SetAlignment(Manifest* m, int64_t alignment) {
  m->alignment = alignment;
  m->format_version = m->NeededFormatVersion();
}

TEST(ManifestTest, EveryBrokenRuleHasItsError) {
  const Rejection rows[] = {
      {"version", [](Manifest* m) { m->format_version = 0; }},
      {"features", [](Manifest* m) { m->cpu_features = {"fma", "avx2"}; }},
      {"features", [](Manifest* m) { m->cpu_features = {"fma", "fma"}; }},
      {"features",
       [](Manifest* m) {
         m->code[0].device = "opencl";
         m->code[0].features = {"fp64", "fp16"};
       }},
      {"code", [](Manifest* m) { m->code[0].features = {"fp16"}; }},
      {"size", [](Manifest* m) { m->arena_bytes = -1; }},
      {"size", [](Manifest* m) { m->workspace_bytes = INT64_MAX; }},
      {"version", [](Manifest* m) { m->alignment = 32; }},
      {"alignment", [](Manifest* m) { SetAlignment(m, 8); }},
      {"alignment", [](Manifest* m) { SetAlignment(m, 48); }},
      {"alignment", [](Manifest* m) { SetAlignment(m, 128); }},
      {"alignment", [](Manifest* m) { SetAlignment(m, -64); }},
      {"tensor_offset",
       [](Manifest* m) {
         SetAlignment(m, 32);
         m->tensors[1].offset = 16;
       }},
      {"digest", [](Manifest* m) { m->constants_digest = "abc"; }},
      {"digest", [](Manifest* m) { m->constants_digest.clear(); }},
      {"version", [](Manifest* m) { m->size_vars = {{"n", 1, 2}}; }},
      {"tensor_id", [](Manifest* m) { m->tensors[1].id = 7; }},
      {"tensor_name", [](Manifest* m) { m->tensors[0].name = ""; }},
      {"tensor_offset", [](Manifest* m) { m->tensors[0].offset = 64; }},
      {"tensor_offset", [](Manifest* m) { m->tensors[1].offset = 1; }},
      {"tensor_offset", [](Manifest* m) { m->tensors[1].offset = -64; }},
      {"tensor_offset", [](Manifest* m) { m->tensors[1].offset = 64 * 1024; }},
      {"tensor_offset", [](Manifest* m) { m->tensors[3].offset = INT64_MAX - 63; }},
      {"tensor_bytes", [](Manifest* m) { m->tensors[1].bytes -= 4; }},
      {"tensor_bytes", [](Manifest* m) { m->tensors[1].shape = {Dim(1), Dim(INT64_MAX)}; }},
      {"tensor_bytes",
       [](Manifest* m) { m->tensors[1].shape = {Dim(int64_t{1} << 32), Dim(int64_t{1} << 32)}; }},
      {"tensor_bytes", [](Manifest* m) { m->tensors[1].dtype = DType::kInt8; }},
      {"shape", [](Manifest* m) { m->tensors[1].shape[0] = Dim::Variable("n"); }},
      {"shape", [](Manifest* m) { m->tensors[1].shape[0] = -2; }},
      {"shape", [](Manifest* m) { m->tensors[1].shape.resize(33, Dim(1)); }},
      {"prepared_overlap", [](Manifest* m) { m->tensors[3].offset = 448; }},
      {"code", [](Manifest* m) { m->code[0].format = ""; }},
      {"code", [](Manifest* m) { m->code[0].abi_version = 0; }},
      {"digest", [](Manifest* m) { m->code[0].digest = std::string(64, 'G'); }},
      {"functions", [](Manifest* m) { m->functions.clear(); }},
      {"functions", [](Manifest* m) { m->functions.push_back(m->functions[0]); }},
      {"function_ends", [](Manifest* m) { m->functions[0].inputs = {1}; }},
      {"function_ends", [](Manifest* m) { m->functions[0].inputs = {0, 0}; }},
      {"function_ends", [](Manifest* m) { m->functions[0].outputs = {-1}; }},
      {"symbol", [](Manifest* m) { m->functions[0].launches[0].symbol = "main"; }},
      {"symbol", [](Manifest* m) { m->functions[0].launches[0].symbol = "tw_kernel_a b"; }},
      {"code_index", [](Manifest* m) { m->functions[0].launches[0].code = 2; }},
      {"code_index", [](Manifest* m) { m->functions[0].launches[0].code = -1; }},
      {"workspace", [](Manifest* m) { m->functions[0].launches[0].workspace_bytes = 1 << 20; }},
      {"number", [](Manifest* m) { m->functions[0].launches[0].flops = -1; }},
      {"grid", [](Manifest* m) { m->functions[0].launches[0].grid = {1, 1, 1}; }},
      {"grid", [](Manifest* m) { m->functions[0].launches[0].group = {1, 1, 1}; }},
      {"grid",
       [](Manifest* m) {
         m->functions[0].launches[0].grid = {4, 0, 1};
         m->functions[0].launches[0].group = {8, 1, 1};
       }},
      {"grid",
       [](Manifest* m) {
         m->functions[0].launches[0].grid = {4, 1, 1};
         m->functions[0].launches[0].group = {1 << 10, 1 << 10, 1 << 10};
       }},
      {"num_outputs", [](Manifest* m) { m->functions[0].launches[0].num_outputs = 0; }},
      {"num_outputs", [](Manifest* m) { m->functions[0].launches[0].num_outputs = 4; }},
      {"arg", [](Manifest* m) { m->functions[0].launches[0].args[0] = 99; }},
      {"arg", [](Manifest* m) { m->functions[0].launches[0].args[2] = 1; }},
      {"arg", [](Manifest* m) { m->functions[0].launches[0].args[2] = 0; }},
      {"arg", [](Manifest* m) { m->functions[0].prepare[0].args[1] = 5; }},
      {"arg", [](Manifest* m) { m->functions[0].inputs.clear(); }},
      {"unwritten_output", [](Manifest* m) { m->functions[0].launches.pop_back(); }},
      {"measurement", [](Manifest* m) { m->measurement->inputs.clear(); }},
      {"measurement", [](Manifest* m) { m->measurement->inputs[0].tensor = 5; }},
      {"measurement", [](Manifest* m) { m->functions[0].name = "other"; }},
      {"distribution", [](Manifest* m) { m->measurement->inputs[0].distribution.a = 2; }},
      {"number", [](Manifest* m) { m->measurement->tolerance.abs = 0.0 / 0.0; }},
      {"digest", [](Manifest* m) { m->measurement->expected_digest = "x"; }},
  };
  int index = 0;
  for (const Rejection& row : rows) {
    SCOPED_TRACE("row " + std::to_string(index++));
    Manifest manifest = Complete();
    ASSERT_TRUE(ValidateManifest(manifest).ok());
    row.damage(&manifest);
    const absl::Status status = ValidateManifest(manifest);
    EXPECT_EQ(support::Slug(status), std::string("module.manifest.") + row.slug) << status;
    EXPECT_FALSE(ManifestToJson(manifest).ok()) << "an invalid manifest is never written";
  }
}

TEST(ManifestTest, TextThatIsNotUtf8IsNotWritten) {
  Manifest manifest = Complete();
  manifest.name = "\xFF\xFE";
  EXPECT_EQ(support::Slug(ManifestToJson(manifest).status()), "module.manifest.utf8");
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ManifestTest, HostileJsonIsRefused) {
  const std::string good = *ManifestToJson(Complete());
  const auto slug = [](const std::string& json) {
    return support::Slug(ManifestFromJson(json).status());
  };
  EXPECT_EQ(slug(""), "module.manifest.json");
  EXPECT_EQ(slug("null"), "module.manifest.type");
  EXPECT_EQ(slug("[]"), "module.manifest.type");
  EXPECT_EQ(slug(good.substr(0, good.size() - 1)), "module.manifest.json");
  EXPECT_EQ(slug(std::string(100000, '[')), "module.manifest.depth");
  EXPECT_EQ(slug(Replaced(good, "\"target\"", "\"tarket\"")), "module.manifest.type");
  EXPECT_EQ(slug(Replaced(good, "{\"arena", "{\"aaa\":1,\"arena")), "module.manifest.type");
  EXPECT_EQ(slug(Replaced(good, "\"arena_bytes\":768", "\"arena_bytes\":768.5")),
            "module.manifest.type");
  EXPECT_EQ(slug(Replaced(good, "\"arena_bytes\":768", "\"arena_bytes\":18446744073709551615")),
            "module.manifest.type");
  EXPECT_EQ(slug(Replaced(good, "\"arena_bytes\":768", "\"arena_bytes\":1e300")),
            "module.manifest.type");
  EXPECT_EQ(slug(Replaced(good, "\"float32\"", "\"float31\"")), "module.manifest.dtype");
  EXPECT_EQ(slug(Replaced(good, "\"uniform\"", "\"poisson\"")), "module.manifest.type");
  EXPECT_EQ(slug(Replaced(good, "\"format_version\":1",
                          "\"format_version\":" + std::to_string(kNewestFormatVersion + 1))),
            "module.manifest.version");
  EXPECT_EQ(
      ManifestFromJson(Replaced(good, "\"format_version\":1",
                                "\"format_version\":" + std::to_string(kNewestFormatVersion + 1)))
          .status()
          .code(),
      absl::StatusCode::kUnimplemented);
  EXPECT_EQ(slug(Replaced(good, "\"arena_bytes\":768", "\"arena_bytes\":64")),
            "module.manifest.tensor_offset");
}

// Damage to the text either is refused or gives a manifest that is valid and prints again.
TEST(ManifestTest, RandomDamageNeverCrashes) {
  const auto open = ModuleFile::FromBytes(*SerializeModule(test::OpenRowsModule()));
  ASSERT_TRUE(open.ok()) << open.status();
  const auto state = ModuleFile::FromBytes(*SerializeModule(test::ColumnSumsModule()));
  ASSERT_TRUE(state.ok()) << state.status();
  const std::string good[] = {*ManifestToJson(Complete()), std::string(open->manifest_json()),
                              std::string(state->manifest_json())};
  constexpr uint64_t kSeed = 20261121;
  constexpr int kRounds = 20000;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  support::Rng rng(kSeed);
  int accepted[3] = {0, 0, 0};
  for (int round = 0; round < kRounds; ++round) {
    std::string text = good[round % 3];
    const auto edits = 1 + rng.Uniform(4);
    for (uint64_t e = 0; e < edits; ++e) {
      const size_t at = rng.Uniform(text.size());
      switch (rng.Uniform(5)) {
        case 0:
          text[at] = static_cast<char>(rng.Uniform(256));
          break;
        case 1:
          text[at] = "0123456789-[]{},:\"N*+(/)"[rng.Uniform(24)];
          break;
        case 2:
          text.erase(at, 1 + rng.Uniform(8));
          break;
        case 3:
          text.insert(at, text.substr(rng.Uniform(text.size()), 1 + rng.Uniform(40)));
          break;
        default:
          text.insert(at, std::string(1 + rng.Uniform(30), '9'));
          break;
      }
      if (text.empty()) text = "{";
    }
    const auto manifest = ManifestFromJson(text);
    if (!manifest.ok()) {
      ASSERT_EQ(support::Slug(manifest.status()).rfind("module.manifest.", 0), 0u)
          << manifest.status();
      continue;
    }
    ++accepted[round % 3];
    const auto printed = ManifestToJson(*manifest);
    ASSERT_TRUE(printed.ok()) << printed.status();
    const auto again = ManifestFromJson(*printed);
    ASSERT_TRUE(again.ok() && *again == *manifest) << "round " << round;
  }
  EXPECT_GT(accepted[0], 0) << "some damage is harmless (a digit of a hash)";
  EXPECT_GT(accepted[1], 0);
  EXPECT_GT(accepted[2], 0);
}

TEST(LaunchNamesTest, TextKeepsWhatHasAPlaceInALine) {
  const std::vector<LaunchNames> names = {{"t0-conv2d", "relu_4", {"Conv_0", "Schicht ä"}},
                                          {"t1-dense", "out", {}}};
  EXPECT_EQ(ParseLaunchNames(LaunchNamesText(names)), names);
  EXPECT_TRUE(ParseLaunchNames(LaunchNamesText({})).empty());
  // Names of hostile models: a manifest with them must still be one.
  const std::string text = LaunchNamesText({{"t\t0", "a\nb", {std::string("\xff\x00z", 3)}}});
  const std::vector<LaunchNames> read = ParseLaunchNames(text);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].task, "t 0");
  EXPECT_EQ(read[0].launch, "a b");
  EXPECT_EQ(read[0].nodes, std::vector<std::string>{"\xef\xbf\xbd z"});
  Manifest manifest = Complete();
  manifest.provenance[LaunchNamesKey("main")] = text;
  EXPECT_TRUE(ManifestToJson(manifest).ok());
}

TEST(DTypeTest, TablesAgree) {
  for (int i = 0; i <= static_cast<int>(DType::kFloat64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(DTypeFromName(DTypeName(dtype)), dtype);
    EXPECT_EQ(DTypeFromOnnx(DTypeToOnnx(dtype)), dtype);
  }
  EXPECT_EQ(DTypeFromName("string"), std::nullopt);
  EXPECT_EQ(DTypeFromOnnx(8), std::nullopt);
  EXPECT_EQ(DTypeBytes(DType::kBFloat16), 2);
}

TEST(ShapeTest, CountsElementsWithoutOverflow) {
  EXPECT_EQ(NumElements({}), 1);
  EXPECT_EQ(NumElements({Dim(2), Dim(3)}), 6);
  EXPECT_EQ(NumElements({Dim(0), Dim(3)}), 0);
  EXPECT_EQ(NumElements({Dim(INT64_MAX), Dim(2)}), std::nullopt);
  EXPECT_EQ(NumElements({Dim(INT64_MAX), Dim(2), Dim(0)}), std::nullopt);
  EXPECT_EQ(ShapeText({}), "scalar");
  EXPECT_EQ(ShapeText({Dim(2), Dim(3)}), "2x3");
}

}  // namespace
}  // namespace tilewright::module
