// The emulated GPU finds what it must find: kernels that are right run, and each planted fault is
// reported with its kind. What it counts of traffic is what a GPU's manual says.
#include "tests/support/simt/simt.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/simt/simt_compile.h"

namespace tilewright::simt {
namespace {

using support::StrCat;

constexpr int64_t kThreads = 64, kGroups = 3, kElements = kThreads * kGroups;

// A kernel of x and y, kElements floats each, in kGroups groups of kThreads threads. `t` is the
// thread's number, `i` the element's, `g` the group's.
struct Row {
  const char* name;
  const char* body;
  const char* fault;  // null: none
  Language language = Language::kCuda;
};
constexpr Row kRows[] = {
    // Right ones, which the faults below are changes of.
    {"copy", "y[i] = x[i];", nullptr},
    {"reverse", "S[t] = x[i]; __syncthreads(); y[i] = S[63 - t];", nullptr},
    {"tree",
     "S[t] = x[i]; __syncthreads();"
     "for (int n = 32; n > 0; n /= 2) { if (t < n) S[t] += S[t + n]; __syncthreads(); }"
     "y[i] = S[0];",
     nullptr},
    {"rounds",
     "float sum = 0;"
     "for (int r = 0; r < 4; ++r) { S[t] = x[i] + r; __syncthreads(); sum += S[63 - t]; "
     "__syncthreads(); }"
     "y[i] = sum;",
     nullptr},
    {"two_versions",
     "float sum = 0; S[t] = x[i]; __syncthreads();"
     "for (int r = 0; r < 4; ++r) { const int now = r % 2 * 64, next = 64 - now;"
     "S[next + t] = x[i] + r; sum += S[now + 63 - t]; __syncthreads(); }"
     "y[i] = sum;",
     nullptr},
    {"vectors", "if (t < 16) ((float4*)y)[g * 16 + t] = ((const float4*)x)[g * 16 + t];", nullptr},
    {"shuffles",
     "float v = x[i]; for (int n = 16; n > 0; n /= 2) v += __shfl_xor_sync(0xffffffffu, v, n);"
     "y[i] = v;",
     nullptr},
    {"through_global",
     "y[i] = x[i]; __syncthreads(); float v = y[g * 64 + 63 - t];"
     "__syncthreads(); y[i] = v;",
     nullptr},
    {"opencl_reverse", "S[t] = x[i]; barrier(CLK_LOCAL_MEM_FENCE); y[i] = S[63 - t];", nullptr,
     Language::kOpenCl},
    {"opencl_vectors", "if (t < 16) vstore4(vload4(0, x + g * 64 + t * 4), 0, y + g * 64 + t * 4);",
     nullptr, Language::kOpenCl},
    {"opencl_through_global",
     "y[i] = x[i]; barrier(CLK_GLOBAL_MEM_FENCE); float v = y[g * 64 + 63 - t];"
     "barrier(CLK_GLOBAL_MEM_FENCE); y[i] = v;",
     nullptr, Language::kOpenCl},

    {"hip_reverse", "S[t] = x[i]; __syncthreads(); y[i] = S[63 - t];", nullptr, Language::kHip},
    {"hip_shuffles",
     "float v = x[i]; for (int n = 32; n > 0; n /= 2) v += from_lane(v, t ^ n);"
     "y[i] = v;",
     nullptr, Language::kHip},
    {"metal_reverse",
     "S[t] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = S[63 - t];", nullptr,
     Language::kMetal},
    {"metal_sums", "y[i] = simd_sum(x[i]) + simd_max(x[i]) - simd_min(x[i]);", nullptr,
     Language::kMetal},
    {"metal_through_global",
     "y[i] = x[i]; threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);"
     "float v = y[g * 64 + 63 - t];"
     "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup); y[i] = v;",
     nullptr, Language::kMetal},

    // Missing barriers.
    {"no_barrier", "S[t] = x[i]; y[i] = S[63 - t];", "simt.uninitialised.shared"},
    {"no_barrier_later", "S[t] = 0; __syncthreads(); S[t] = x[i]; y[i] = S[63 - t];",
     "simt.race.shared"},
    {"tree_without",
     "S[t] = x[i]; __syncthreads();"
     "for (int n = 32; n > 0; n /= 2) { if (t < n) S[t] += S[t + n]; }"
     "y[i] = S[0];",
     "simt.race.shared"},
    {"no_second_barrier",
     "float sum = 0;"
     "for (int r = 0; r < 4; ++r) { S[t] = x[i] + r; __syncthreads(); sum += S[63 - t]; }"
     "y[i] = sum;",
     "simt.race.shared"},
    {"one_version",
     "float sum = 0; S[t] = x[i]; __syncthreads();"
     "for (int r = 0; r < 4; ++r) { S[t] = x[i] + r; sum += S[63 - t]; __syncthreads(); }"
     "y[i] = sum;",
     "simt.race.shared"},
    {"global_without", "y[i] = x[i]; y[i] += y[g * 64 + (t + 1) % 64];",
     "simt.uninitialised.global"},
    {"global_race", "y[i] = x[i]; __syncthreads(); y[i] = y[g * 64 + 63 - t];", "simt.race.global"},
    {"local_fence", "y[i] = x[i]; barrier(CLK_LOCAL_MEM_FENCE); S[t] = y[g * 64 + 63 - t];",
     "simt.race.global", Language::kOpenCl},

    {"hip_no_barrier", "S[t] = x[i]; y[i] = S[63 - t];", "simt.uninitialised.shared",
     Language::kHip},
    {"metal_no_barrier", "S[t] = x[i]; y[i] = S[63 - t];", "simt.uninitialised.shared",
     Language::kMetal},
    {"metal_no_second_barrier",
     "float sum = 0;"
     "for (int r = 0; r < 4; ++r) { S[t] = x[i] + r; "
     "threadgroup_barrier(mem_flags::mem_threadgroup); sum += S[63 - t]; }"
     "y[i] = sum;",
     "simt.race.shared", Language::kMetal},
    {"metal_local_fence",
     "y[i] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup); S[t] = y[g * 64 + 63 - t];",
     "simt.race.global", Language::kMetal},

    // Two threads that write the same element.
    {"same_shared", "S[t / 2] = x[i]; __syncthreads(); y[i] = S[t / 2];", "simt.race.shared"},
    {"same_global", "y[i / 2] = x[i];", "simt.race.global"},
    {"same_across_groups", "y[t] = x[i];", "simt.race.global"},
    {"read_of_other_group", "y[i] = x[i]; __syncthreads(); if (g > 0) S[t] = y[i - 64];",
     "simt.race.global"},
    {"opencl_same", "S[0] = x[i];", "simt.race.shared", Language::kOpenCl},

    // Off by one, and further.
    {"one_too_far", "y[i] = x[i + 1];", "simt.out_of_bounds"},
    {"one_too_early", "y[i] = x[i - 1];", "simt.out_of_bounds"},
    {"store_too_far", "y[i + 1] = x[i];", "simt.out_of_bounds"},
    {"shared_too_far", "S[2 * t + 2] = x[i];", "simt.out_of_bounds"},
    {"shared_too_early", "S[t - 1] = x[i];", "simt.out_of_bounds"},
    {"far_away", "y[i] = x[i + (1 << 26)];", "simt.out_of_bounds"},
    {"nowhere", "y[i] = *(const float*)8;", "simt.out_of_bounds"},
    {"vector_over_the_end",
     "if (t < 16) ((float4*)y)[g * 16 + t] = ((const float4*)(x + 140))[g * 16 + t];",
     "simt.out_of_bounds"},
    {"opencl_vector_over_the_end", "vstore4(vload4(0, x + i), 0, y + i);", "simt.race.global",
     Language::kOpenCl},
    {"opencl_load_over_the_end", "y[i] = vload4(0, x + i).s3;", "simt.out_of_bounds",
     Language::kOpenCl},

    {"hip_too_far", "y[i] = x[i + 1];", "simt.out_of_bounds", Language::kHip},
    {"metal_too_far", "y[i] = x[i + 1];", "simt.out_of_bounds", Language::kMetal},

    // Barriers that not all threads come to.
    {"half_come", "if (t < 32) __syncthreads(); y[i] = x[i];", "simt.barrier.divergent"},
    {"some_return", "if (t == 5) return; __syncthreads(); y[i] = x[i];", "simt.barrier.divergent"},
    {"two_barriers",
     "if (t < 32) {\n __syncthreads();\n } else {\n __syncthreads();\n }\n y[i] = x[i];",
     "simt.barrier.divergent"},
    {"loop_of_threads", "for (int r = 0; r <= t % 2; ++r) __syncthreads(); y[i] = x[i];",
     "simt.barrier.divergent"},
    {"opencl_half_come", "if (t < 32) barrier(CLK_LOCAL_MEM_FENCE); y[i] = x[i];",
     "simt.barrier.divergent", Language::kOpenCl},

    {"hip_two_barriers",
     "if (t < 32) {\n __syncthreads();\n } else {\n __syncthreads();\n }\n y[i] = x[i];",
     "simt.barrier.divergent", Language::kHip},
    {"metal_half_come", "if (t < 32) threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = x[i];",
     "simt.barrier.divergent", Language::kMetal},

    // Vectors at places that are no multiple of their size.
    {"misaligned_load", "if (t < 8) ((float4*)y)[t] = *(const float4*)(x + 4 * t + 1);",
     "simt.misaligned"},
    {"misaligned_store", "if (t < 8) *(float2*)(y + 2 * t + 1) = *(const float2*)(x + 2 * t);",
     "simt.misaligned"},
    {"misaligned_scalar", "if (t == 0) y[0] = *(const float*)((const char*)x + 2);",
     "simt.misaligned"},

    {"metal_misaligned",
     "if (t < 8) ((device tw_wide<float, 4>*)y)[t] = *(const device tw_wide<float, 4>*)(x + 1);",
     "simt.misaligned", Language::kMetal},

    // What nothing has written.
    {"unwritten_shared", "if (t != 7) S[t] = x[i]; __syncthreads(); y[i] = S[t];",
     "simt.uninitialised.shared"},
    {"unwritten_global", "y[i] += x[i];", "simt.uninitialised.global"},
    {"sum_without_zero", "S[t] += x[i]; y[i] = S[t];", "simt.uninitialised.shared"},
    {"opencl_unwritten", "y[i] = S[t];", "simt.uninitialised.shared", Language::kOpenCl},

    // Shuffles that not all threads of the mask come to.
    {"half_shuffle", "float v = x[i]; if (t % 2) v = __shfl_xor_sync(0xffffffffu, v, 1); y[i] = v;",
     "simt.warp.divergent"},
    {"two_shuffles",
     "float v = x[i];\n if (t % 2) v = __shfl_xor_sync(0xffffffffu, v, 1);\n"
     "else v = __shfl_xor_sync(0xffffffffu, v, 2);\n y[i] = v;",
     "simt.warp.divergent"},
};

std::string TextOf(const Row& row) {
  if (row.language == Language::kMetal) {
    return StrCat("#include <metal_stdlib>\nusing namespace metal;\n[[kernel]] void ", row.name,
                  "(constant long& n [[buffer(0)]], device const float* x [[buffer(1)]], "
                  "device float* y [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]], "
                  "uint3 thread [[thread_position_in_threadgroup]]) {\n"
                  "  threadgroup float S[128];\n"
                  "  const int t = thread.x, g = group.x, i = g * 64 + t;\n  ",
                  row.body, "\n}\n");
  }
  if (row.language != Language::kOpenCl) {
    return StrCat(row.language == Language::kHip
                      ? "static inline float from_lane(float x, int lane) {\n  int word;\n"
                        "  __builtin_memcpy(&word, &x, 4);\n"
                        "  word = __builtin_amdgcn_ds_bpermute(4 * lane, word);\n"
                        "  __builtin_memcpy(&x, &word, 4);\n  return x;\n}\n"
                      : "",
                  "extern \"C\" __global__ void __launch_bounds__(64) ", row.name,
                  "(long n, const float* x, float* y) {\n  __shared__ float S[128];\n"
                  "  const int t = threadIdx.x, g = blockIdx.x, i = g * 64 + t;\n  ",
                  row.body, "\n}\n");
  }
  return StrCat("__kernel void ", row.name,
                "(long n, __global const float* x, __global float* y) {\n  __local float S[128];\n"
                "  const int t = get_local_id(0), g = get_group_id(0), i = g * 64 + t;\n  ",
                row.body, "\n}\n");
}

class SimtTest : public testing::Test {
 protected:
  // All kernels of the table are one compilation.
  static void SetUpTestSuite() {
    std::vector<Text> texts;
    for (const Row& row : kRows)
      texts.push_back(
          {row.language, TextOf(row), {row.name}, row.language == Language::kHip ? 64u : 32u});
    auto compiled = Compile(texts);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    kernels_ = new std::vector<std::vector<Kernel>>(*std::move(compiled));
  }

  void SetUp() override {
    ASSERT_NE(kernels_, nullptr);
    x_ = static_cast<float*>(emulator_.memory().Allocate(kBytes, sizeof(float), "x"));
    y_ = static_cast<float*>(emulator_.memory().Allocate(kBytes, sizeof(float), "y"));
    for (int64_t i = 0; i < kElements; ++i) x_[i] = static_cast<float>(i);
    emulator_.memory().MarkWritten(x_, kBytes);
  }

  absl::Status Run(const char* name, bool count_traffic = false) {
    size_t row = 0;
    while (kRows[row].name != std::string(name)) ++row;
    return emulator_.Launch(
        {.kernel = (*kernels_)[row][0],
         .groups = {kGroups, 1, 1},
         .threads = {kThreads, 1, 1},
         .arguments = {kElements, reinterpret_cast<uint64_t>(x_), reinterpret_cast<uint64_t>(y_)},
         .count_traffic = count_traffic});
  }

  static constexpr size_t kBytes = kElements * sizeof(float);
  static std::vector<std::vector<Kernel>>* kernels_;
  Emulator emulator_;
  float *x_ = nullptr, *y_ = nullptr;
};
std::vector<std::vector<Kernel>>* SimtTest::kernels_ = nullptr;

TEST_F(SimtTest, EachFaultIsFoundAndNoOther) {
  int faults = 0;
  for (const Row& row : kRows) {
    Emulator fresh;
    const auto* x = fresh.memory().Allocate(kBytes, sizeof(float), "x");
    const auto* y = fresh.memory().Allocate(kBytes, sizeof(float), "y");
    fresh.memory().MarkWritten(x, kBytes);
    const absl::Status status = fresh.Launch(
        {.kernel = (*kernels_)[static_cast<size_t>(&row - kRows)][0],
         .groups = {kGroups, 1, 1},
         .threads = {kThreads, 1, 1},
         .arguments = {kElements, reinterpret_cast<uint64_t>(x), reinterpret_cast<uint64_t>(y)}});
    EXPECT_EQ(support::Slug(status), row.fault == nullptr ? "" : row.fault)
        << row.name << ": " << status;
    faults += row.fault != nullptr;
  }
  EXPECT_GE(faults, 20);
}

TEST_F(SimtTest, RightKernelsComputeWhatTheySay) {
  ASSERT_EQ(Run("reverse"), absl::OkStatus());
  for (int64_t i = 0; i < kElements; ++i)
    EXPECT_EQ(y_[i], x_[i / kThreads * kThreads + 63 - i % kThreads]) << i;
  ASSERT_EQ(Run("tree"), absl::OkStatus());
  for (int64_t g = 0; g < kGroups; ++g) EXPECT_EQ(y_[g * kThreads], 64 * 64 * g + 63 * 32) << g;
  ASSERT_EQ(Run("shuffles"), absl::OkStatus());
  for (int64_t i = 0; i < kElements; ++i) EXPECT_EQ(y_[i], 32 * (i / 32 * 32) + 31 * 16) << i;
  ASSERT_EQ(Run("hip_shuffles"), absl::OkStatus());  // a warp of 64 threads
  for (int64_t i = 0; i < kElements; ++i)
    EXPECT_EQ(y_[i], 64 * (i / kThreads * kThreads) + 63 * 32) << i;
  ASSERT_EQ(Run("metal_sums"), absl::OkStatus());
  for (int64_t i = 0; i < kElements; ++i) EXPECT_EQ(y_[i], 32 * (i / 32 * 32) + 31 * 16 + 31) << i;
  ASSERT_EQ(Run("opencl_vectors"), absl::OkStatus());
  EXPECT_EQ(std::memcmp(x_, y_, kBytes), 0);
}

// A fault of one launch leaves no trace in the next.
TEST_F(SimtTest, ALaunchBeginsAnew) {
  EXPECT_EQ(support::Slug(Run("same_global")), "simt.race.global");
  EXPECT_EQ(support::Slug(Run("half_come")), "simt.barrier.divergent");
  EXPECT_EQ(Run("copy"), absl::OkStatus());
  EXPECT_EQ(Run("reverse"), absl::OkStatus());
}

TEST_F(SimtTest, LaunchesBeyondTheLimitsAreRefused) {
  const Kernel kernel = (*kernels_)[0][0];
  EXPECT_EQ(support::Slug(emulator_.Launch({.kernel = kernel, .threads = {1025, 1, 1}})),
            "simt.launch.limits");
  EXPECT_EQ(support::Slug(emulator_.Launch({.kernel = kernel, .groups = {0, 1, 1}})),
            "simt.launch.limits");
  Emulator small({.group_threads = 64, .shared_bytes = 256});
  const auto* x = small.memory().Allocate(kBytes, sizeof(float), "x");
  const auto* y = small.memory().Allocate(kBytes, sizeof(float), "y");
  small.memory().MarkWritten(x, kBytes);
  EXPECT_EQ(support::Slug(small.Launch(
                {.kernel = (*kernels_)[1][0],
                 .threads = {kThreads, 1, 1},
                 .arguments = {64, reinterpret_cast<uint64_t>(x), reinterpret_cast<uint64_t>(y)}})),
            "simt.launch.limits");
}

// Kernels of one warp whose accesses a manual would take as its examples.
struct TrafficRow {
  const char* name;
  const char* body;
  int64_t global_sectors, shared_conflicts;
};
constexpr TrafficRow kTraffic[] = {
    {"neighbours", "y[t] = x[t];", 4 + 4, 0},
    {"one_for_all", "y[t] = x[0];", 1 + 4, 0},
    {"columns", "y[t] = x[8 * t % 256 + t / 32];", 32 + 4, 0},
    {"shifted", "y[t] = x[t + 1];", 5 + 4, 0},
    {"wide", "((float4*)y)[t] = ((const float4*)x)[t];", 16 + 16, 0},
    {"rows_of_banks", "S[t] = x[t]; y[t] = S[t];", 4 + 4, 0},
    {"one_word", "S[t] = x[t]; __syncthreads(); y[t] = S[3];", 4 + 4, 0},
    {"stride_two", "S[2 * t] = x[t]; __syncthreads(); y[t] = S[62 - 2 * t];", 4 + 4, 2},
    {"stride_32", "S[32 * t] = x[t]; __syncthreads(); y[t] = S[32 * (31 - t)];", 4 + 4, 62},
    {"padded", "S[33 * t] = x[t]; __syncthreads(); y[t] = S[33 * (31 - t)];", 4 + 4, 0},
    {"wide_shared", "((float4*)S)[t] = ((const float4*)x)[t]; ((float4*)y)[t] = ((float4*)S)[t];",
     16 + 16, 0},
};

// Runs one warp of a kernel of (const float* x, float* y), of 1,024 elements each.
absl::Status CountWarp(const Kernel& kernel, Emulator* emulator) {
  const auto* x = emulator->memory().Allocate(4096, 4, "x");
  const auto* y = emulator->memory().Allocate(4096, 4, "y");
  emulator->memory().MarkWritten(x, 4096);
  return emulator->Launch(
      {.kernel = kernel,
       .threads = {32, 1, 1},
       .arguments = {reinterpret_cast<uint64_t>(x), reinterpret_cast<uint64_t>(y)},
       .count_traffic = true});
}

TEST(SimtTraffic, IsWhatAGpuNeeds) {
  std::vector<Text> texts;
  for (const TrafficRow& row : kTraffic) {
    texts.push_back({Language::kCuda,
                     StrCat("extern \"C\" __global__ void ", row.name,
                            "(const float* x, float* y) {\n  __shared__ float S[1056];\n"
                            "  const int t = threadIdx.x;\n  ",
                            row.body, "\n}\n"),
                     {row.name}});
  }
  auto compiled = Compile(texts);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  for (size_t i = 0; i < compiled->size(); ++i) {
    Emulator emulator;
    ASSERT_EQ(CountWarp((*compiled)[i][0], &emulator), absl::OkStatus()) << kTraffic[i].name;
    EXPECT_EQ(emulator.traffic().global_sectors, kTraffic[i].global_sectors) << kTraffic[i].name;
    EXPECT_EQ(emulator.traffic().shared_conflicts(), kTraffic[i].shared_conflicts)
        << kTraffic[i].name;
  }
}

// Of 8192 visits to a place 2048 are kept, for all of them.
TEST(SimtTraffic, ManyVisitsToAPlaceAreCountedAsTheFirst) {
  auto compiled = Compile({{Language::kCuda,
                            "extern \"C\" __global__ void k(const float* x, float* y) {\n"
                            "  __shared__ float S[64];\n"
                            "  float sum = 0;\n"
                            "  for (int i = 0; i < 8192; ++i) {\n"
                            "    S[2 * threadIdx.x] = x[threadIdx.x + i % 2 * 32];\n"
                            "    sum += S[2 * threadIdx.x];\n"
                            "  }\n"
                            "  y[threadIdx.x] = sum;\n}\n",
                            {"k"}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  Emulator emulator;
  ASSERT_EQ(CountWarp((*compiled)[0][0], &emulator), absl::OkStatus());
  EXPECT_EQ(emulator.traffic().global_sectors, 4 * 8192 + 4);
  EXPECT_EQ(emulator.traffic().global_requests, 8192 + 1);
  EXPECT_GE(emulator.traffic().shared_turns, 2 * 8192);
}

TEST(SimtTraffic, IsKeptForEachArray) {
  auto compiled = Compile({{Language::kCuda,
                            "extern \"C\" __global__ void k(const float* x, float* y) {\n"
                            "  y[threadIdx.x] = x[8 * threadIdx.x];\n}\n",
                            {"k"}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  Emulator emulator;
  ASSERT_EQ(CountWarp((*compiled)[0][0], &emulator), absl::OkStatus());
  const TrafficParts& parts = emulator.traffic_parts();
  ASSERT_EQ(parts.size(), 2);
  EXPECT_EQ(parts.at({"x", false}).global_sectors, 32);
  EXPECT_EQ(parts.at({"y", true}).global_sectors, 4);
}

TEST(SimtCompile, SaysWhatTheCompilerSays) {
  const auto compiled =
      Compile({{Language::kCuda, "extern \"C\" __global__ void k() { nonsense; }", {"k"}}});
  EXPECT_EQ(support::Slug(compiled.status()), "simt.compile");
  EXPECT_NE(compiled.status().message().find("nonsense"), std::string::npos);
}

TEST(SimtCompile, FindsTheKernelsOfAText) {
  EXPECT_EQ(KernelNames("__global__ __launch_bounds__(1 * 2) void first(int a) {}\n"
                        "static inline int helper(int a) { return a; }\n"
                        "extern \"C\" __global__ __launch_bounds__(64) void second() {}\n"),
            (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(
      KernelNames("[[kernel, max_total_threads_per_threadgroup(8)]] void k(device int* a) {}"),
      (std::vector<std::string>{"k"}));
  EXPECT_EQ(KernelNames("__kernel __attribute__((x(1)))\nvoid k(__global float* a) {}"),
            (std::vector<std::string>{"k"}));
}

}  // namespace
}  // namespace tilewright::simt
