// Whole modules for the accelerator through the runtime: parts on the device and parts on the
// processor, bit for bit what the interpreter of graphs computes, on both simulators; and modules
// whose streams are wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/driver/tasks.h"
#include "compiler/graph/graph.h"
#include "compiler/graph/graph_passes.h"
#include "deploy/module/module_file.h"
#include "deploy/module/module_writer.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/vta_programs.h"
#include "vta/isa/code_object.h"

namespace tilewright::driver {
namespace {

using support::StrCat;
using testing::HasSubstr;

std::string Hex(const std::vector<uint8_t>& bytes) {
  return StrCat("hex:",
                support::HexEncode({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}
std::string RandomBytes(size_t count, uint64_t seed) {
  support::Rng rng(seed);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng.NextU64());
  return Hex(bytes);
}

// A quantised layer of 8 blocks between a negation and an absolute value of bytes.
std::string NetworkText() {
  return StrCat(R"(graph "net" {
  input %0 "x": i8[5,32]
  constant %1 "w": i8[64,32] = )",
                RandomBytes(64 * 32, 1), R"(
  constant %2 "s": f32[] = hex:0ad7a33b
  constant %3 "none": i32[] = hex:00000000
  constant %4 "one": f32[] = hex:0000803f
  constant %5 "z": i8[] = hex:00
  %6 "n": i8[5,32] = neg(%0) "n"
  %7 "d": i32[5,64] = dense(%6, %1) "d"
  %8 "f": f32[5,64] = dequantize(%7, %2, %3) "f"
  %9 "q": i8[5,64] = quantize(%8, %4, %5) "q"
  %10 "y": i8[5,64] = abs(%9) "y"
  output %10
}
)");
}

class VtaModuleTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("TILEWRIGHT_PLUGIN_DIR", TILEWRIGHT_VTA_FOLDER, 1); }

  void SetUp() override {
    target_ = *target::ParseTarget("vta");
    auto parsed = graph::ParseGraph(NetworkText());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    auto fused = graph::RunGraphPasses(*parsed, PassContext(target_));
    ASSERT_TRUE(fused.ok()) << fused.status();
    graph_ = *std::move(fused);
  }

  absl::StatusOr<module::ModuleFile> Compiled() {
    TW_ASSIGN(const std::string bytes, CompileModel(graph_, target_, nullptr, {}, &report_));
    return module::ModuleFile::FromBytes(bytes);
  }

  target::Target target_;
  graph::Graph graph_;
  CompileReport report_;
};

absl::StatusOr<std::vector<int8_t>> RunOn(module::ModuleFile file, const std::string& device,
                                          const std::vector<int8_t>& x) {
  TW_ASSIGN(auto loaded, runtime::LoadedModule::Load(std::move(file)));
  runtime::SessionOptions options;
  options.device = device;
  TW_ASSIGN(auto session, runtime::Session::Create(loaded, options));
  TW_TRY(session->SetInput(0, x.data(), x.size()));
  TW_TRY(session->Run());
  const runtime::TensorView y = session->output(0);
  std::vector<int8_t> result(y.bytes);
  std::memcpy(result.data(), y.data, y.bytes);
  return result;
}

std::vector<int8_t> SomeInput() {
  std::vector<int8_t> x;
  for (int i = 0; i < 5 * 32; ++i) x.push_back(static_cast<int8_t>(i * 53 % 251 - 125));
  return x;
}

TEST_F(VtaModuleTest, PartsRunWhereTheyCanAndComputeTheSame) {
  auto file = Compiled();
  ASSERT_TRUE(file.ok()) << file.status();
  std::map<std::string, bool> on_host;
  for (const CompileReport::Kernel& kernel : report_.kernels)
    on_host[kernel.task_name.substr(0, kernel.task_name.find(' '))] = kernel.on_host;
  EXPECT_EQ(on_host, (std::map<std::string, bool>{
                         {"neg", true}, {"dense_requantize_cast", false}, {"abs", true}}));
  const module::Manifest& manifest = file->manifest();
  ASSERT_EQ(manifest.code.size(), 2u);
  EXPECT_EQ(manifest.code[0].device, "vta");
  EXPECT_EQ(manifest.code[1].device, "");
  std::vector<int64_t> code;
  for (const module::Launch& launch : manifest.functions[0].launches) code.push_back(launch.code);
  EXPECT_EQ(code, (std::vector<int64_t>{1, 0, 1}));

  const std::vector<int8_t> x = SomeInput();
  op::RefTensor input{{ir::kI8, {5, 32}}, {x.begin(), x.end()}};
  auto expected = graph::Interpret(graph_, {input});
  ASSERT_TRUE(expected.ok()) << expected.status();
  const std::vector<double>& numbers = (*expected)[0].values;
  EXPECT_GT(std::set<double>(numbers.begin(), numbers.end()).size(), 50u);
  for (const char* device : {"", "0", "1", "vta cycle model", "vta functional simulator"}) {
    auto again = Compiled();
    ASSERT_TRUE(again.ok());
    auto result = RunOn(*std::move(again), device, x);
    ASSERT_TRUE(result.ok()) << device << ": " << result.status();
    EXPECT_EQ(std::vector<double>(result->begin(), result->end()), numbers) << device;
  }
}

TEST_F(VtaModuleTest, DevicesThatAreNotThereAreNamed) {
  for (const auto& [device, slug] :
       std::map<std::string, std::string>{{"vta board", "runtime.device.name"},
                                          {"7", "runtime.device.open"},
                                          {"-1", "runtime.device.open"},
                                          {"99999999999", "runtime.device.open"}}) {
    auto file = Compiled();
    ASSERT_TRUE(file.ok());
    const absl::Status status = RunOn(*std::move(file), device, SomeInput()).status();
    EXPECT_EQ(support::Slug(status), slug) << status;
  }
}

// Streams that the generator would not write: the module loads the same way, and says what is
// wrong.
TEST_F(VtaModuleTest, WrongStreamsAreErrors) {
  struct Row {
    const char* slug;
    const char* says;
    void (*spoil)(vta::Program*);
  };
  const Row rows[] = {
      {"runtime.device.bad_code", "vta.tokens.",
       [](vta::Program* p) {
         for (vta::Instruction& i : p->stream) i.push_next = 0;
       }},
      {"runtime.device.bad_code", "vta.driver.address",
       [](vta::Program* p) { p->params[0].bytes -= 16; }},
      {"runtime.device.bad_code", "vta.sim.bounds",
       [](vta::Program* p) {
         // The last micro-op that any instruction uses names an element beyond acc.
         for (vta::Instruction& i : p->stream) {
           if (i.op == vta::Opcode::kAlu) i.iter_in = (1 << 14) - 1;
         }
       }},
      {"runtime.device.invalid", "vta.driver.operands",
       [](vta::Program* p) { p->params.push_back({"z", 0, 0}); }},
      {"runtime.device.not_found", "vta.driver.kernel", [](vta::Program* p) { p->name += "x"; }},
  };
  for (const Row& row : rows) {
    auto file = Compiled();
    ASSERT_TRUE(file.ok());
    auto code = vta::ParseCode(file->code(0));
    ASSERT_TRUE(code.ok()) << code.status();
    row.spoil(&code->programs[0]);
    module::ModuleParts parts;
    parts.manifest = file->manifest();
    parts.constants = std::string(file->constants());
    parts.code = {tests::CodeBytes(code->config, code->programs), std::string(file->code(1))};
    auto bytes = module::SerializeModule(parts);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    auto spoilt = module::ModuleFile::FromBytes(*bytes);
    ASSERT_TRUE(spoilt.ok()) << spoilt.status();
    const absl::Status status = RunOn(*std::move(spoilt), "", SomeInput()).status();
    EXPECT_EQ(support::Slug(status), row.slug) << status;
    EXPECT_THAT(support::StatusText(status), HasSubstr(row.says));
  }
}

}  // namespace
}  // namespace tilewright::driver
