// Points of the rules for groups of threads on the emulated GPU. Products of four warps whose
// factors are in shared memory (wgmma): each layout of the factors and each width, what NVRTC makes
// of them, and that the emulator finds each step that is left out, and each wrong layout. Sums in
// parts, groups of several tiles, sums of neighbouring results, vectors of terms.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "compiler/codegen/host_device.h"
#include "compiler/ir/ir_text.h"
#include "compiler/space/rules/tile_operands.h"
#include "compiler/space/space.h"
#include "compiler/targets/cuda/cuda_codegen.h"
#include "compiler/targets/cuda/nvrtc.h"
#include "compiler/transform/passes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/simt/simt_plan.h"

namespace tilewright::tests {
namespace {

using support::StatusText;
using support::StrCat;

target::Target Machine() { return *target::ParseTarget("cuda,arch=sm_90a,tf32=on"); }

// C[m,n] = A[m,k] B[k,n], each factor with rows of terms or of its own elements.
ir::Function Product(int64_t m, int64_t n, int64_t k, const std::string& type, bool a_turned,
                     bool b_turned) {
  const std::string a = a_turned ? "vk, vi" : "vi, vk", b = b_turned ? "vk, vj" : "vj, vk";
  const auto box = [](const std::string& at) {
    return StrCat(at.substr(0, 2), ":1", at.substr(2), ":1");
  };
  return *ir::ParseFunction(StrCat(
      "fn product(A: ", type,
      a_turned ? StrCat("[", k, ", ", m, "]") : StrCat("[", m, ", ", k, "]"), " input, B: ", type,
      b_turned ? StrCat("[", k, ", ", n, "]") : StrCat("[", n, ", ", k, "]"), " input, C: f32[", m,
      ", ", n, "] output) stage=scheduled { for i in 0..", m, " { for j in 0..", n,
      " { for k in 0..", k, " { block C(vi: spatial 0..", m, " = i, vj: spatial 0..", n,
      " = j, vk: reduce 0..", k, " = k) { reads A[", box(a), "], B[", box(b),
      "]; writes C[vi:1, vj:1]; init { C[vi, vj] = 0.0f32; } C[vi, vj] = C[vi, vj] + f32(A[", a,
      "]) * f32(B[", b, "]); } } } } }"));
}

// The point of a sketch with these knobs, others at their first value, as text.
simt::PlanText TextOf(const ir::Function& program, const std::string& sketch,
                      const std::map<std::string, int64_t>& chosen) {
  const auto space = space::Space::Create(program, Machine());
  EXPECT_TRUE(space.ok()) << StatusText(space.status());
  const auto& sketches = (*space)->sketches();
  space::Point point;
  while (sketches[static_cast<size_t>(point.sketch)]->name() != sketch) ++point.sketch;
  for (const space::Knob& knob : sketches[static_cast<size_t>(point.sketch)]->knobs()) {
    const auto value = chosen.find(knob.name);
    const auto at = value == chosen.end()
                        ? knob.menu.begin()
                        : std::find(knob.menu.begin(), knob.menu.end(), value->second);
    EXPECT_NE(at, knob.menu.end()) << knob.name;
    point.choices.push_back(static_cast<int>(at - knob.menu.begin()));
  }
  EXPECT_TRUE((*space)->Feasible(point));
  const auto scheduled = (*space)->Apply(point);
  EXPECT_TRUE(scheduled.ok()) << StatusText(scheduled.status());
  transform::PassContext context;
  context.target = Machine();
  const auto lowered =
      transform::RunPipeline(scheduled->function(), transform::GpuPipeline(), context);
  EXPECT_TRUE(lowered.ok()) << StatusText(lowered.status());
  const auto plan = codegen::SplitHostDevice(*lowered);
  EXPECT_TRUE(plan.ok()) << StatusText(plan.status());
  std::vector<ir::Function> kernels;
  for (const codegen::Launch& launch : plan->launches) kernels.push_back(launch.kernel);

  const auto text = cuda::EmitCuda(kernels);
  EXPECT_TRUE(text.ok()) << StatusText(text.status());
  return {simt::Language::kCuda, *plan, *text};
}

absl::Status Check(const ir::Function& program, const simt::CompiledPlan& compiled) {
  EquivalenceOptions options;
  options.run_other = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                          std::vector<ir::TensorData*> args) {
    return simt::RunPlan(compiled, sizes, args);
  };
  return SameResults(program, program, options);
}

void ExpectRight(const std::vector<ir::Function>& programs,
                 const std::vector<simt::PlanText>& texts) {
  const auto compiled = simt::CompilePlans(texts);
  ASSERT_TRUE(compiled.ok()) << StatusText(compiled.status());
  for (size_t i = 0; i < texts.size(); ++i) {
    const absl::Status same = Check(programs[i], (*compiled)[i]);
    EXPECT_TRUE(same.ok()) << StatusText(same) << "\n" << texts[i].text;
  }
}

// Of every so many-th text; returns what NVRTC made.
std::vector<std::string> CubinsWithoutSpills(const std::vector<simt::PlanText>& texts,
                                             size_t step) {
  std::vector<std::string> cubins;
  for (size_t i = 0; i < texts.size(); i += step) {
    const auto cubin = cuda::CompileText(texts[i].text, "sm_90a");
    EXPECT_TRUE(cubin.ok()) << StatusText(cubin.status()) << "\n" << texts[i].text;
    if (!cubin.ok()) continue;
    EXPECT_EQ(cubin->kernels[0].spill_bytes + cubin->kernels[0].stack_bytes, 0) << texts[i].text;
    cubins.push_back(cubin->bytes);
  }
  return cubins;
}

TEST(WarpGroups, EveryLayoutAndWidthIsRight) {
  std::vector<ir::Function> programs;
  std::vector<simt::PlanText> texts;
  for (const int width : {64, 128, 256}) {
    for (const int way : {0, 1, 2, 3}) {
      const std::string type = width == 128 ? "bf16" : "f16";
      programs.push_back(
          Product(128, std::max(128, width), 64, type, (way & 1) != 0, (way & 2) != 0));
      // Two groups of warps next to each other, two products of each, where there is room.
      std::map<std::string, int64_t> knobs = {{"fragments_rows", 2}};
      if (width == 256) knobs = {{"fragments_rows", 1}, {"warps_rows", 2}};
      if (width == 64) knobs["warps_columns"] = 2;
      texts.push_back(TextOf(programs.back(), StrCat("tensor_tiles_64x", width), knobs));
    }
  }
  // The longest pipeline.
  programs.push_back(Product(64, 64, 640, "f16", false, true));
  texts.push_back(TextOf(programs.back(), "tensor_tiles_64x64", {{"stages", 5}}));
  ExpectRight(programs, texts);
  if (cuda::NvrtcName() == "nvrtc-none") GTEST_SKIP() << "[SKIP] no NVRTC";
  CubinsWithoutSpills(texts, 5);  // each width, each way of a factor
}

// As above, with tiles that a unit copies, for pipelines of several lengths.
TEST(WarpGroups, BulkCopiesAreRight) {
  std::vector<ir::Function> programs;
  std::vector<simt::PlanText> texts;
  for (const int width : {64, 128, 256}) {
    for (const int way : {0, 1, 2, 3}) {
      const std::string type = width == 128 ? "bf16" : "f16";
      programs.push_back(Product(128, std::max(128, width), width == 256 ? 128 : 256, type,
                                 (way & 1) != 0, (way & 2) != 0));
      std::map<std::string, int64_t> knobs = {
          {"bulk_copies", 1}, {"stages", 2 + way % 3}, {"warps_rows", 2}};
      if (width == 64) knobs["fragments_rows"] = 2, knobs["warps_rows"] = 1;
      if (width == 64) knobs["warps_columns"] = 2;
      if (way == 3) knobs["fragments_step"] = 2;  // rows of two blocks, of several products
      if (way == 3 || width == 256) knobs["stages"] = 2;
      if (width == 256) knobs["fragments_step"] = 1;
      texts.push_back(TextOf(programs.back(), StrCat("tensor_tiles_64x", width), knobs));
      EXPECT_NE(texts.back().text.find("TW_BULK_COPY("), std::string::npos) << texts.back().text;
      EXPECT_EQ(texts.back().text.find("tw_copy_async("), std::string::npos) << texts.back().text;
    }
  }
  // Groups of several tiles, and of a batch of products.
  programs.push_back(Product(256, 128, 128, "f16", false, true));
  texts.push_back(TextOf(programs.back(), "tensor_tiles_64x64",
                         {{"bulk_copies", 1}, {"stages", 2}, {"tiles_of_group", 4}}));
  programs.push_back(Product(64, 128, 256, "f16", false, false));
  texts.push_back(TextOf(programs.back(), "tensor_tiles_64x128",
                         {{"bulk_copies", 1}, {"stages", 2}, {"parts", 2}}));
  // So many steps that each word is used again, in its next phase.
  programs.push_back(Product(64, 64, 1280, "f16", false, false));
  texts.push_back(
      TextOf(programs.back(), "tensor_tiles_64x64", {{"bulk_copies", 1}, {"stages", 5}}));
  ExpectRight(programs, texts);
  if (cuda::NvrtcName() == "nvrtc-none") GTEST_SKIP() << "[SKIP] no NVRTC";
  for (const std::string& cubin : CubinsWithoutSpills(texts, 3))
    EXPECT_NE(cubin.find("_tensor_maps"), std::string::npos) << "the code has no maps";
}

struct Planted {
  const char* what;
  const char* with;
};
// Each is at least once in the text of the test below.
constexpr Planted kPlanted[] = {
    {"TW_PRODUCTS_BEGIN();", ""},                            // registers are not ordered
    {"TW_PRODUCTS_END();", ""},                              // nothing lands
    {"TW_ORDER_SHARED();", ""},                              // the unit sees old values
    {"__syncthreads();", ""},                                // threads do not wait for each other
    {"TW_WAIT_ASYNC(", "(void)("},                           // copies are on their way
    {"(c % 64 ^ r % 8 * 8)", "c % 64"},                      // rows as they are
    {"(c % 64 ^ r % 8 * 8)", "(c % 64 ^ (r + 1) % 8 * 8)"},  // turned by another row's number
    {"(c / 64 * rows + r)", "(c / 64 + r)"},                 // blocks over others
    {"next_rows = 1024 / 16", "next_rows = 2048 / 16"},      // the stride of blocks of rows
    {"next_in_row = 128 * rows / 16", "next_in_row = 64 * rows / 16"},
    {"swizzle_128 = 1", "swizzle_128 = 2"},            // the 64-byte swizzle
    {"(a_turned ? 128 : 2)", "(a_turned ? 128 : 4)"},  // steps of other terms
    {"(b_turned ? 128 : 2)", "2"},
    {"from_a + k", "from_b + k"},
    {"__align__(1024) half A", "__align__(16) half A"},  // blocks begin where the pattern does not
};

// The same of copies that a unit does.
constexpr Planted kPlantedInCopies[] = {
    {"TW_BULK_BEGIN(arrivals);",
     "tw_u64* const tw_arrivals = arrivals; tw_u32 tw_asked = 0, "
     "tw_come = 0;"},                                      // words that nobody has initialised
    {"    TW_BULK_COMMIT();", "    ++tw_asked;"},          // the arrival is missing
    {"TW_BULK_WAIT(0);", ""},                              // copies are on their way
    {"TW_BULK_WAIT(0);", "TW_BULK_WAIT(1);"},              // those of the last group, too
    {"tw_come / 8 % 2", "1 - tw_come / 8 % 2"},            // the phase before
    {"boxes * box_rows * 128", "boxes * box_rows * 64"},   // fewer bytes than come
    {"boxes * box_rows * 128", "boxes * box_rows * 256"},  // or more
    {"+ box * rows * 64", "+ box * rows * 32"},            // boxes over others
    {"+ box * 64", ""},                                    // boxes of the same columns
    {"__syncthreads();\n      if", "\n      if"},          // a tile that is read still
    {"% 2) * 4096", "% 1) * 4096"},                        // one slot for all steps
    {"half, A_shared, 8192, 0)", "half, A_shared, 8192, 64)"},
    {", 64, 64};", ", 64, 32};"},                          // a map of smaller boxes
    {"tensor_maps[10] = {1, ", "tensor_maps[10] = {0, "},  // of another buffer
};

void ExpectFaultsFound(const ir::Function& program, const simt::PlanText& right,
                       std::span<const Planted> faults) {
  std::vector<simt::PlanText> texts = {right};
  std::vector<std::string> planted = {"nothing"};
  for (const Planted& fault : faults) {
    simt::PlanText faulty = right;
    const std::string what = fault.what;
    size_t count = 0;
    for (size_t at = 0; (at = faulty.text.find(what, at)) != std::string::npos; ++count) {
      faulty.text.replace(at, what.size(), fault.with);
      at += std::string_view(fault.with).size();
    }
    EXPECT_GT(count, 0u) << what << "\n" << right.text;
    texts.push_back(std::move(faulty));
    planted.push_back(StrCat(what, " as ", fault.with));
  }
  const auto compiled = simt::CompilePlans(texts);
  ASSERT_TRUE(compiled.ok()) << StatusText(compiled.status());
  for (size_t i = 0; i < texts.size(); ++i) {
    const absl::Status same = Check(program, (*compiled)[i]);
    EXPECT_EQ(same.ok(), i == 0) << planted[i] << ": " << StatusText(same);
  }
}

TEST(WarpGroups, TheEmulatorFindsWhatIsLeftOutOrLiesWrong) {
  const ir::Function program = Product(64, 128, 128, "f16", false, true);
  ExpectFaultsFound(program, TextOf(program, "tensor_tiles_64x128", {{"stages", 2}}), kPlanted);
  const std::map<std::string, int64_t> bulk = {{"stages", 2}, {"bulk_copies", 1}};
  const ir::Function longer = Product(64, 128, 256, "f16", false, true);
  ExpectFaultsFound(longer, TextOf(longer, "tensor_tiles_64x128", bulk), kPlantedInCopies);
}

// y[0, n] = sum over k of x[0, k] * w[k, n]: neighbours in memory are of different results.
constexpr char kRow[] =
    "fn row(X: f32[1, 96] input, W: f32[96, 48] input, Y: f32[1, 48] output) stage=scheduled { for "
    "i in 0..1 { for j in 0..48 { for k in 0..96 { block Y(vi: spatial 0..1 = i, vj: spatial 0..48 "
    "= j, vk: reduce 0..96 = k) { reads X[vi:1, vk:1], W[vk:1, vj:1]; writes Y[vi:1, vj:1]; init { "
    "Y[vi, vj] = 0.0f32; } Y[vi, vj] = Y[vi, vj] + X[vi, vk] * W[vk, vj]; } } } } }";
// A convolution of one tap on channels in blocks of four: the terms of a block are neighbours.
constexpr char kBlocks[] =
    "fn blocks(X: f32[2, 32, 4] input, W: f32[4, 2, 4, 4] input, Y: f32[4, 32, 4] output) "
    "stage=scheduled { for o in 0..4 { for w in 0..32 { for p in 0..4 { for c in 0..2 { for q in "
    "0..4 { block Y(vo: spatial 0..4 = o, vw: spatial 0..32 = w, vp: spatial 0..4 = p, vc: reduce "
    "0..2 = c, vq: reduce 0..4 = q) { reads X[vc:1, vw:1, vq:1], W[vo:1, vc:1, vq:1, vp:1]; writes "
    "Y[vo:1, vw:1, vp:1]; init { Y[vo, vw, vp] = 0.0f32; } Y[vo, vw, vp] = Y[vo, vw, vp] + X[vc, "
    "vw, vq] * W[vo, vc, vq, vp]; } } } } } } }";

// A product whose columns lie in blocks of 16: threads next to each other read two blocks.
constexpr char kColumnBlocks[] =
    "fn packed(X: f32[8, 64] input, W: f32[4, 64, 16] input, Y: f32[8, 64] output) stage=scheduled "
    "{ for i in 0..8 { for j in 0..64 { for k in 0..64 { block Y(vi: spatial 0..8 = i, vj: spatial "
    "0..64 = j, vk: reduce 0..64 = k) { reads X[vi:1, vk:1], W[vj / 16:1, vk:1, vj % 16:1]; writes "
    "Y[vi:1, vj:1]; init { Y[vi, vj] = 0.0f32; } Y[vi, vj] = Y[vi, vj] + X[vi, vk] * W[vj / 16, "
    "vk, vj % 16]; } } } } }";

// A row of the test below: its point is right, and moves no more sectors than `sectors`.
struct PointRow {
  ir::Function program;
  const char* sketch;
  std::map<std::string, int64_t> knobs;
  int64_t most_over_least = 0;  // sectors of global memory, in percent; 0: any
  int64_t conflicts = -1;       // turns of the banks more than without any; -1: any
};

TEST(GroupPoints, PartsTilesColumnsAndVectorsAreRight) {
  const ir::Function halves = Product(128, 128, 256, "f16", false, true);
  const std::vector<PointRow> rows = {
      {halves, "tensor_tiles", {{"parts", 4}, {"warps_rows", 2}, {"fragments_columns", 4}}},
      {halves, "tensor_tiles_64x64", {{"parts", 2}, {"tiles_of_group", 4}}},
      {halves, "tensor_tiles_64x128", {{"tiles_of_group", 2}, {"stages", 2}}},
      {Product(64, 32, 64, "f32", false, true),
       "tensor_tiles",
       {{"warps_rows", 2}, {"fragments_columns", 4}, {"fragments_step", 4}, {"stages", 2}},
       100,
       0},
      {Product(32, 32, 128, "f32", true, false), "tensor_tiles", {{"parts", 2}}},
      {*ir::ParseFunction(kRow), "tree_reduction", {{"columns_Y", 16}, {"threads_Y", 24}}, 105},
      {*ir::ParseFunction(kBlocks),
       "thread_tiles",
       {{"lanes", 4}, {"threads_vw", 32}, {"tiles_of_group", 2}},
       105},
      {*ir::ParseFunction(kColumnBlocks),
       "thread_tiles",
       {{"lanes", 2},
        {"threads_vj", 32},
        {"threads_vi", 4},
        {"fetch_W", 1},
        {"step_vk", 64},
        {"row_padding", space::kBlocksApart}},
       100,
       0},
  };
  std::vector<simt::PlanText> texts;
  for (const PointRow& row : rows) texts.push_back(TextOf(row.program, row.sketch, row.knobs));
  const auto compiled = simt::CompilePlans(texts);
  ASSERT_TRUE(compiled.ok()) << StatusText(compiled.status());
  for (size_t i = 0; i < rows.size(); ++i) {
    const absl::Status same = Check(rows[i].program, (*compiled)[i]);
    EXPECT_TRUE(same.ok()) << StatusText(same) << "\n" << texts[i].text;
    if (rows[i].most_over_least == 0) continue;
    const auto counts = simt::CountPlan((*compiled)[i], 4);
    ASSERT_TRUE(counts.ok()) << StatusText(counts.status());
    const simt::Traffic sum = simt::Sum((*counts)[0]);
    if (rows[i].conflicts >= 0) {
      EXPECT_EQ(sum.shared_conflicts(), rows[i].conflicts) << texts[i].text;
    }
    EXPECT_LE(100 * sum.global_sectors, rows[i].most_over_least * sum.global_ideal_sectors)
        << texts[i].text;
  }
}

// Blocks of rows lie apart by a row, where storage_align has that offset.
TEST(GroupPoints, BlocksLieApartByRowsOfAPowerOfTwo) {
  const target::LaunchLimits limits = Machine().machine.launch;
  const auto apart = [&](int64_t row) {
    return space::SharedRows({2, 4, row}, 4, space::kBlocksApart, 1, limits).apart();
  };
  EXPECT_TRUE(apart(4));
  EXPECT_TRUE(apart(16));
  EXPECT_FALSE(apart(3));
  EXPECT_FALSE(apart(12));
}

// Factors are rounded to 11 bits where they are loaded, sums are not.
TEST(TensorCores, FactorsOf32BitsAreRounded) {
  const ir::Function program = Product(16, 8, 16, "f32", false, false);
  const auto compiled = simt::CompilePlans({TextOf(program, "tensor_tiles", {})});
  ASSERT_TRUE(compiled.ok()) << StatusText(compiled.status());
  std::vector<float> a(16 * 16, 0.0f), b(8 * 16, 0.0f);
  const float unit = 1.0f / 1024;  // of the last of 11 bits
  const float values[] = {1 + unit / 2, 1 + unit / 4, -1 - unit / 2, 3 - unit / 2};
  for (size_t row = 0; row < 4; ++row) a[row * 16 + 5] = values[row];
  a[4 * 16 + 5] = a[4 * 16 + 6] = 1;
  b[5] = 1;  // of column 0
  b[6] = 1.0f / 4096 / 4;
  b[16 + 5] = 1 + unit / 2;  // of column 1
  const auto bytes = [](const std::vector<float>& v) {
    ir::TensorData data;
    data.bytes.resize(v.size() * sizeof(float));
    std::memcpy(data.bytes.data(), v.data(), data.bytes.size());
    return data;
  };
  ir::TensorData a_data = bytes(a), b_data = bytes(b), c_data = bytes(std::vector<float>(16 * 8));
  const absl::Status ran = simt::RunPlan((*compiled)[0], {}, {&a_data, &b_data, &c_data});
  ASSERT_TRUE(ran.ok()) << StatusText(ran);
  std::vector<float> c(16 * 8);
  std::memcpy(c.data(), c_data.bytes.data(), c_data.bytes.size());
  const float rounded[] = {1 + unit, 1, -1 - unit, 3};
  for (size_t row = 0; row < 4; ++row) EXPECT_EQ(c[row * 8], rounded[row]) << row;
  EXPECT_EQ(c[1], (1 + unit) * (1 + unit));
  EXPECT_EQ(c[4 * 8], 1 + 1.0f / 4096 / 4);
}

// Nothing rounds them where the target does not ask for it.
TEST(TensorCores, ProductsOf32BitsAreAskedFor) {
  const ir::Function program = Product(64, 64, 64, "f32", false, false);
  for (const char* text : {"cuda,arch=sm_80", "cuda,arch=sm_80,tf32=on"}) {
    const auto space = space::Space::Create(program, *target::ParseTarget(text));
    ASSERT_TRUE(space.ok()) << StatusText(space.status());
    const auto& sketches = (*space)->sketches();
    const bool has = std::any_of(sketches.begin(), sketches.end(), [](const auto& sketch) {
      return sketch->name() == "tensor_tiles";
    });
    EXPECT_EQ(has, std::string_view(text).ends_with("on")) << text;
  }
}

// On machines without such products there are no such points.
TEST(WarpGroups, OnlyTheirMachineHasThem) {
  const ir::Function program = Product(128, 128, 128, "f16", false, false);
  for (const char* arch : {"cuda,arch=sm_80", "cuda,arch=sm_90", "cuda,arch=sm_90a"}) {
    const auto space = space::Space::Create(program, *target::ParseTarget(arch));
    ASSERT_TRUE(space.ok()) << StatusText(space.status());
    const auto count = std::count_if(
        (*space)->sketches().begin(), (*space)->sketches().end(),
        [](const auto& sketch) { return sketch->name().starts_with("tensor_tiles_"); });
    EXPECT_EQ(count, std::string_view(arch).ends_with("a") ? 3 : 0) << arch;
  }
}

}  // namespace
}  // namespace tilewright::tests
