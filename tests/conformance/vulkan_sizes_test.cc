// Sizes that come many times in a row are constants of a pipeline of their own. Others are not, nor
// are any once a kernel has a few such pipelines. What kernels compute is the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <spirv/unified1/spirv.hpp11>
#include <string>
#include <vector>

#include "compiler/ir/ir_text.h"
#include "compiler/targets/vulkan/vulkan_codegen.h"
#include "deploy/runtime/device_loader.h"
#include "deploy/runtime/spirv_abi.h"
#include "deploy/support/status.h"

namespace tilewright::runtime {
namespace {

constexpr int64_t kElements = 64;

// Each of n elements becomes n.
constexpr char kSizeOfAll[] =
    R"(fn size_of_all(n: size, Y: i64[n] output) stage=flat {
  for t in 0..64 threadIdx.x {
    if (t < n) {
      Y[t] = n;
    }
  }
}
)";

std::string Code() {
  const auto function = ir::ParseFunction(kSizeOfAll);
  EXPECT_TRUE(function.ok()) << function.status();
  return vulkan::EmitSpirv({*function})->bytes;
}

// The code with another number in place of the size wherever the size is a constant. The numbers
// that a launch brings stay.
std::string WithAWrongConstant(const std::string& code) {
  constexpr size_t kFirst = 3 + 5;  // the list's words, the module's
  std::vector<uint32_t> words(code.size() / sizeof(uint32_t));
  std::memcpy(words.data(), code.data(), code.size());
  std::map<uint32_t, uint32_t> zeros;  // by type
  uint32_t known = 0;
  int changed = 0;
  for (size_t at = kFirst; at < words.size(); at += words[at] >> 16) {
    const auto op = static_cast<spv::Op>(words[at] & 0xffff);
    if (op == spv::Op::OpSpecConstant) known = words[at + 2];
    const bool is_zero = op == spv::Op::OpConstant && words[at] >> 16 == 5 && words[at + 3] == 0;
    if (is_zero) zeros[words[at + 1]] = words[at + 2];
    if (op != spv::Op::OpSelect || known == 0 || words[at + 4] != known) continue;
    words[at + 4] = zeros.at(words[at + 1]);
    ++changed;
  }
  EXPECT_EQ(changed, 1);
  return {reinterpret_cast<const char*>(words.data()), code.size()};
}

class VulkanSizes : public testing::Test {
 protected:
  void SetUp() override {
    auto plugin = DevicePlugin::Open(TILEWRIGHT_DEVICE_VULKAN);
    ASSERT_TRUE(plugin.ok()) << support::StatusText(plugin.status());
    plugin_ = *std::move(plugin);
    table_ = &plugin_->table();
    int32_t devices = 0;
    ASSERT_EQ(table_->count(&devices), TW_DEVICE_OK);
    if (devices == 0) GTEST_SKIP() << "[SKIP] no Vulkan device";
    ASSERT_EQ(table_->open(0, &device_, nullptr, 0), TW_DEVICE_OK);
    ASSERT_EQ(table_->alloc(device_, kElements * 8, &out_), TW_DEVICE_OK);
  }
  void TearDown() override {
    if (device_ == nullptr) return;
    table_->free(device_, out_);
    if (code_ != nullptr) table_->unload(device_, code_);
    table_->close(device_);
  }
  void Load(const std::string& code) {
    ASSERT_EQ(table_->load(device_, TW_SPIRV_FORMAT, code.data(), code.size(), &code_),
              TW_DEVICE_OK)
        << table_->last_error(device_);
    ASSERT_EQ(table_->find(device_, code_, "size_of_all", &kernel_), TW_DEVICE_OK)
        << table_->last_error(device_);
  }
  // What a launch of this size writes.
  std::vector<int64_t> Run(int64_t n) {
    std::vector<int64_t> values(kElements, -1);
    EXPECT_EQ(table_->write(device_, {out_, 0}, values.data(), kElements * 8), TW_DEVICE_OK);
    const TwDeviceSlice buffer = {out_, 0};
    TwDeviceLaunch launch = {};
    launch.struct_bytes = sizeof(launch);
    launch.kernel = kernel_;
    launch.buffers = &buffer;
    launch.num_buffers = 1;
    launch.sizes = &n;
    launch.num_sizes = 1;
    for (int a = 0; a < 3; ++a) launch.grid[a] = launch.group[a] = 1;
    launch.group[0] = 64;
    EXPECT_EQ(table_->launch(device_, &launch), TW_DEVICE_OK) << table_->last_error(device_);
    EXPECT_EQ(table_->read(device_, {out_, 0}, values.data(), kElements * 8), TW_DEVICE_OK);
    return values;
  }
  static std::vector<int64_t> Expected(int64_t n) {
    std::vector<int64_t> values(kElements, -1);
    std::fill(values.begin(), values.begin() + n, n);
    return values;
  }
  // Runs until the size is a constant, which is wrong; 0: it never is.
  int LaunchesUntilConstant(int64_t n) {
    for (int launch = 1; launch <= 40; ++launch) {
      if (Run(n) != Expected(n)) return launch;
    }
    return 0;
  }

  std::optional<DevicePlugin> plugin_;
  const TwDevicePlugin* table_ = nullptr;
  TwDevice* device_ = nullptr;
  TwDeviceMemory* out_ = nullptr;
  TwDeviceCode* code_ = nullptr;
  TwDeviceKernel* kernel_ = nullptr;
};

TEST_F(VulkanSizes, ComputeTheSameAsConstants) {
  Load(Code());
  for (const int64_t n : {7, 64, 7, 1, 33, 12, 50, 7}) {
    for (int launch = 0; launch < 20; ++launch) ASSERT_EQ(Run(n), Expected(n)) << n << launch;
  }
}

TEST_F(VulkanSizes, AreConstantsWhereTheyComeAgain) {
  Load(WithAWrongConstant(Code()));
  EXPECT_EQ(LaunchesUntilConstant(7), 16);
  // Two that take turns are never many in a row.
  for (int launch = 0; launch < 40; ++launch) {
    const int64_t n = 20 + launch % 2;
    EXPECT_EQ(Run(n), Expected(n)) << launch;
  }
  EXPECT_NE(Run(7), Expected(7)) << "its pipeline is still there";
  for (const int64_t n : {8, 9, 10}) EXPECT_EQ(LaunchesUntilConstant(n), 16) << n;
  EXPECT_EQ(LaunchesUntilConstant(11), 0) << "a kernel has room for four";
}

}  // namespace
}  // namespace tilewright::runtime
