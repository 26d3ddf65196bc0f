// The runtime as programs outside see it: everything under test goes through the shared library and
// its C header.
#include <elf.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "deploy/module/module_writer.h"
#include "deploy/runtime/tilewright.h"
#include "deploy/support/file.h"
#include "gtest/gtest.h"
#include "tests/unit/module_fixture.h"

namespace {

using tilewright::test::DenseReference;
using tilewright::test::kColumns;
using tilewright::test::kInner;
using tilewright::test::kRows;

class CApiTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    auto bytes = tilewright::module::SerializeModule(tilewright::test::DenseModule());
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    bytes_ = *bytes;
    ASSERT_EQ(tw_module_open_memory(bytes_.data(), bytes_.size(), &module_), TW_STATUS_OK)
        << tw_last_error();
    ASSERT_EQ(tw_session_create(module_, GetParam(), &session_), TW_STATUS_OK) << tw_last_error();
    for (int i = 0; i < kRows * kInner; ++i) x_.push_back(0.25f * static_cast<float>(i) - 3.0f);
  }
  void TearDown() override {
    tw_session_destroy(session_);
    tw_module_close(module_);
  }

  DLTensor InputTensor() {
    DLTensor t{};
    t.data = x_.data();
    t.device = {kDLCPU, 0};
    t.ndim = 2;
    t.dtype = {kDLFloat, 32, 1};
    t.shape = shape_;
    return t;
  }
  std::vector<float> Run() {
    EXPECT_EQ(tw_session_run(session_), TW_STATUS_OK) << tw_last_error();
    DLTensor y{};
    EXPECT_EQ(tw_session_get_output(session_, 0, &y), TW_STATUS_OK);
    EXPECT_EQ(y.ndim, 2);
    EXPECT_EQ(y.shape[1], kColumns);
    const auto* data = static_cast<const float*>(y.data);
    return {data, data + kRows * kColumns};
  }

  std::string bytes_;
  TwModule* module_ = nullptr;
  TwSession* session_ = nullptr;
  std::vector<float> x_;
  int64_t shape_[2] = {kRows, kInner};
};

TEST_P(CApiTest, RunsAModule) {
  const DLTensor x = InputTensor();
  ASSERT_EQ(tw_session_set_input(session_, 0, &x), TW_STATUS_OK) << tw_last_error();
  EXPECT_EQ(Run(), DenseReference(x_));
  for (float& value : x_) value = -value;
  ASSERT_EQ(tw_session_set_input_bytes(session_, 0, x_.data(), x_.size() * 4), TW_STATUS_OK);
  EXPECT_EQ(Run(), DenseReference(x_));
}

TEST_P(CApiTest, TakesStridedInputs) {
  // The same values, stored by columns with a gap after each.
  std::vector<float> columns(kInner * (kRows + 1), -1.0f);
  for (int64_t m = 0; m < kRows; ++m) {
    for (int64_t k = 0; k < kInner; ++k) columns[k * (kRows + 1) + m] = x_[m * kInner + k];
  }
  int64_t strides[2] = {1, kRows + 1};
  DLTensor x = InputTensor();
  x.data = columns.data() - 2;
  x.byte_offset = 8;
  x.strides = strides;
  ASSERT_EQ(tw_session_set_input(session_, 0, &x), TW_STATUS_OK) << tw_last_error();
  EXPECT_EQ(Run(), DenseReference(x_));
}

TEST_P(CApiTest, DescribesTheModule) {
  EXPECT_STREQ(tw_module_name(module_), "dense");
  EXPECT_NE(std::string(tw_module_manifest(module_)).find("tw_kernel_matmul"), std::string::npos);
  ASSERT_EQ(tw_module_num_inputs(module_), 1u);
  ASSERT_EQ(tw_module_num_outputs(module_), 1u);
  TwTensorInfo info{};
  ASSERT_EQ(tw_module_output(module_, 0, &info), TW_STATUS_OK);
  EXPECT_STREQ(info.name, "y");
  EXPECT_STREQ(info.dtype_name, "float32");
  EXPECT_EQ(info.ndim, 2);
  EXPECT_EQ(info.shape[0], kRows);
  EXPECT_EQ(info.bytes, size_t{kRows * kColumns * 4});
  size_t index = 9;
  ASSERT_EQ(tw_module_find_input(module_, "x", &index), TW_STATUS_OK);
  EXPECT_EQ(index, 0u);
  EXPECT_EQ(tw_module_find_input(module_, "z", &index), TW_STATUS_NOT_FOUND);
  EXPECT_NE(std::string(tw_last_error()).find("expected one of x"), std::string::npos);
  EXPECT_EQ(tw_module_input(module_, 1, &info), TW_STATUS_INVALID_ARGUMENT);
}

TEST_P(CApiTest, RefusesWrongTensors) {
  const auto expect_slug = [&](const DLTensor& tensor, const char* slug) {
    EXPECT_EQ(tw_session_set_input(session_, 0, &tensor), TW_STATUS_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(tw_last_error()).rfind(slug, 0), 0u) << tw_last_error();
  };
  DLTensor t = InputTensor();
  t.dtype.bits = 64;
  expect_slug(t, "runtime.c_api.dtype");
  t = InputTensor();
  t.ndim = 1;
  expect_slug(t, "runtime.c_api.shape");
  t = InputTensor();
  int64_t other[2] = {kRows, kInner + 1};
  t.shape = other;
  expect_slug(t, "runtime.c_api.shape");
  t = InputTensor();
  t.device.device_type = kDLCUDA;
  expect_slug(t, "runtime.c_api.device");
  t = InputTensor();
  t.data = nullptr;
  expect_slug(t, "runtime.c_api.null");
  EXPECT_EQ(tw_session_set_input_bytes(session_, 0, x_.data(), 3), TW_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(tw_session_set_input_bytes(session_, 5, x_.data(), 4), TW_STATUS_INVALID_ARGUMENT);
}

TEST_P(CApiTest, ProfilesLaunches) {
  const TwLaunchTime* times = nullptr;
  size_t count = 0;
  ASSERT_EQ(tw_session_run_profiled(session_, &times, &count), TW_STATUS_OK);
  ASSERT_EQ(count, 2u);
  EXPECT_STREQ(times[0].symbol, "tw_kernel_matmul");
  EXPECT_STREQ(times[1].name, "add");
}

TEST_P(CApiTest, SessionOutlivesItsModule) {
  tw_module_close(module_);
  module_ = nullptr;
  ASSERT_EQ(tw_session_set_input_bytes(session_, 0, x_.data(), x_.size() * 4), TW_STATUS_OK);
  EXPECT_EQ(Run(), DenseReference(x_));
}

INSTANTIATE_TEST_SUITE_P(Threads, CApiTest, testing::Values(0, 1, 2));

TEST(CApiErrorsTest, BadModulesAndArguments) {
  TwModule* module = nullptr;
  EXPECT_EQ(tw_module_open("/nonexistent/model.tw", &module), TW_STATUS_NOT_FOUND);
  EXPECT_EQ(tw_module_open(nullptr, &module), TW_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(tw_module_open_memory("junk", 4, &module), TW_STATUS_DATA_LOSS);
  EXPECT_EQ(std::string(tw_last_error()).rfind("module.file.magic", 0), 0u);
  EXPECT_EQ(module, nullptr);
  tw_module_close(nullptr);
  tw_session_destroy(nullptr);
  EXPECT_EQ(tw_abi_version(), 1u);
  EXPECT_STRNE(tw_runtime_version(), "");
}

TEST(CApiErrorsTest, OpensFiles) {
  const auto dir = tilewright::support::TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const std::string path = dir->File("model.tw");
  ASSERT_TRUE(tilewright::module::WriteModule(path, tilewright::test::DenseModule()).ok());
  TwModule* module = nullptr;
  ASSERT_EQ(tw_module_open(path.c_str(), &module), TW_STATUS_OK) << tw_last_error();
  TwSession* session = nullptr;
  EXPECT_EQ(tw_session_create(module, -1, &session), TW_STATUS_INVALID_ARGUMENT);
  tw_module_close(module);
}

// The libraries that an ELF file asks for, and the symbols it offers.
struct ElfFacts {
  std::vector<std::string> needed;
  std::vector<std::string> defined;
};

ElfFacts ReadElf(const std::string& bytes) {
  ElfFacts facts;
  const char* base = bytes.data();
  Elf64_Ehdr header;
  std::memcpy(&header, base, sizeof(header));
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, base + header.e_shoff + i * header.e_shentsize, sizeof(section));
    if (section.sh_type != SHT_DYNAMIC && section.sh_type != SHT_DYNSYM) continue;
    Elf64_Shdr strings;
    std::memcpy(&strings, base + header.e_shoff + section.sh_link * header.e_shentsize,
                sizeof(strings));
    const char* names = base + strings.sh_offset;
    for (uint64_t at = 0; at < section.sh_size; at += section.sh_entsize) {
      const char* entry = base + section.sh_offset + at;
      if (section.sh_type == SHT_DYNAMIC) {
        Elf64_Dyn dyn;
        std::memcpy(&dyn, entry, sizeof(dyn));
        if (dyn.d_tag == DT_NEEDED) facts.needed.push_back(names + dyn.d_un.d_val);
        continue;
      }
      Elf64_Sym symbol;
      std::memcpy(&symbol, entry, sizeof(symbol));
      if (symbol.st_shndx != SHN_UNDEF && symbol.st_name != 0) {
        facts.defined.push_back(names + symbol.st_name);
      }
    }
  }
  return facts;
}

TEST(SharedLibraryTest, NeedsOnlyTheSystemAndShowsOnlyItsInterface) {
  const auto bytes = tilewright::support::ReadFile(TILEWRIGHT_RUNTIME_LIBRARY, 1 << 30);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const ElfFacts facts = ReadElf(*bytes);
  for (const std::string& name : facts.needed) {
    const bool system = name.rfind("libc.so", 0) == 0 || name.rfind("libm.so", 0) == 0 ||
                        name.rfind("ld-linux", 0) == 0 || name.rfind("libdl.so", 0) == 0 ||
                        name.rfind("libpthread.so", 0) == 0 ||
                        name.find("san.so") != std::string::npos;
    EXPECT_TRUE(system) << "the library needs " << name;
  }
  EXPECT_GE(facts.defined.size(), 20u);
  for (const std::string& name : facts.defined) {
    EXPECT_EQ(name.rfind("tw_", 0), 0u) << "the library shows " << name;
  }
}

}  // namespace
