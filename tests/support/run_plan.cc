#include "tests/support/run_plan.h"

#include <utility>

#include "compiler/ir/verify.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {
namespace {

std::vector<std::pair<ir::Var, int64_t>> Values(const codegen::HostPlan& plan,
                                                const std::vector<int64_t>& sizes) {
  std::vector<std::pair<ir::Var, int64_t>> values;
  for (size_t i = 0; i < sizes.size(); ++i) values.emplace_back(plan.size_params[i], sizes[i]);
  return values;
}

}  // namespace

absl::Status InterpretPlan(const codegen::HostPlan& plan, const std::vector<int64_t>& sizes,
                           const std::vector<ir::TensorData*>& args) {
  std::vector<ir::TensorData> buffers(plan.buffers.size());
  for (size_t i = 0; i < plan.num_params; ++i) buffers[i] = *args[i];
  for (const codegen::Launch& launch : plan.launches) {
    std::vector<ir::TensorData*> given;
    for (int i : launch.arguments) given.push_back(&buffers[static_cast<size_t>(i)]);
    TW_TRY(ir::Verify(launch.kernel));
    TW_TRY(ir::Interpret(launch.kernel, sizes, given,
                         {.check_uninitialised = false, .outputs_hold_values = true}));
  }
  for (size_t i = 0; i < plan.num_params; ++i) *args[i] = buffers[i];
  return absl::OkStatus();
}

namespace {

// The barriers hang or fail unless all threads of a group come to them, as sub-groups demand.
constexpr char kFourThreads[] = R"(
int tw_first(void) { return (int)get_local_id(0) / 4 * 4; }
int tw_lanes(void) { return min(4, (int)get_local_size(0) - tw_first()); }
#define TW_REDUCE(type)                                                         \
  type __attribute__((overloadable)) tw_reduce(int op, type x, __local long* scratch) { \
    __local type* all = (__local type*)scratch;                                  \
    all[get_local_id(0)] = x;                                                    \
    barrier(CLK_LOCAL_MEM_FENCE);                                                \
    type result = all[tw_first()];                                               \
    for (int i = 1; i < tw_lanes(); ++i) {                                       \
      const type other = all[tw_first() + i];                                    \
      result = op == 0 ? result + other : op == 1 ? min(result, other) : max(result, other); \
    }                                                                            \
    barrier(CLK_LOCAL_MEM_FENCE);                                                \
    return result;                                                               \
  }
TW_REDUCE(float)
TW_REDUCE(int)
#define get_sub_group_local_id() (get_local_id(0) % 4)
#define get_sub_group_size() tw_lanes()
#define sub_group_reduce_add(x) tw_reduce(0, x, tw_scratch)
#define sub_group_reduce_min(x) tw_reduce(1, x, tw_scratch)
#define sub_group_reduce_max(x) tw_reduce(2, x, tw_scratch)
)";

}  // namespace

std::string WithEmulatedSubGroups(const std::string& text) {
  std::string kernels = text;
  for (size_t at = 0; (at = kernels.find("__kernel ", at)) != std::string::npos;) {
    at = kernels.find(" {\n", at) + 3;
    kernels.insert(at, "  __local long tw_scratch[256];\n");
  }
  return kFourThreads + kernels;
}

absl::StatusOr<std::unique_ptr<PlanDevice>> PlanDevice::Open(const std::string& path) {
  TW_ASSIGN(runtime::DevicePlugin plugin, runtime::DevicePlugin::Open(path));
  TwDevice* device = nullptr;
  char error[200] = {};
  if (plugin.table().open(0, &device, error, sizeof(error)) != TW_DEVICE_OK)
    return support::NotFound("test.run_plan.device", error);
  return std::unique_ptr<PlanDevice>(new PlanDevice(std::move(plugin), device));
}

PlanDevice::PlanDevice(runtime::DevicePlugin plugin, TwDevice* device)
    : plugin_(std::move(plugin)), device_(device) {}

PlanDevice::~PlanDevice() {
  for (TwDeviceMemory* m : memory_) plugin_.table().free(device_, m);
  plugin_.table().close(device_);
}

absl::Status PlanDevice::Launch(const codegen::HostPlan& plan, const codegen::Launch& launch,
                                TwDeviceCode* code, const std::vector<int64_t>& sizes) {
  const TwDevicePlugin& table = plugin_.table();
  TwDeviceLaunch call = {};
  call.struct_bytes = sizeof(call);
  TW_TRY(Check(table.find(device_, code, launch.kernel.name.c_str(), &call.kernel)));
  for (size_t a = 0; a < 3; ++a) {
    TW_ASSIGN(call.grid[a], ir::EvalIntExpr(launch.grid[a], Values(plan, sizes)));
    TW_ASSIGN(call.group[a], ir::EvalIntExpr(launch.group[a], Values(plan, sizes)));
  }
  std::vector<TwDeviceSlice> slices;
  for (int i : launch.arguments) slices.push_back({memory_[static_cast<size_t>(i)], 0});
  call.buffers = slices.data();
  call.num_buffers = static_cast<int64_t>(slices.size());
  call.sizes = sizes.data();
  call.num_sizes = static_cast<int64_t>(sizes.size());
  return Check(table.launch(device_, &call));
}

absl::Status PlanDevice::Run(const codegen::HostPlan& plan, const std::string& bytes,
                             const std::vector<int64_t>& sizes,
                             const std::vector<ir::TensorData*>& args) {
  const TwDevicePlugin& table = plugin_.table();
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    int64_t bytes = plan.buffers[i]->dtype.bytes();
    for (const ir::Expr& e : plan.buffers[i]->shape) {
      TW_ASSIGN(int64_t extent, ir::EvalIntExpr(e, Values(plan, sizes)));
      bytes *= extent;
    }
    TwDeviceMemory* memory = nullptr;
    TW_TRY(Check(table.alloc(device_, bytes, &memory)));
    memory_.push_back(memory);
    if (i >= plan.num_params) continue;
    args[i]->bytes.resize(static_cast<size_t>(bytes));
    TW_TRY(Check(table.write(device_, {memory, 0}, args[i]->bytes.data(), bytes)));
  }
  TwDeviceCode* code = nullptr;
  TwDeviceInfo info = {};
  info.struct_bytes = sizeof(info);
  TW_TRY(Check(table.describe(device_, &info)));
  const std::string format = support::Split(info.code_formats, ',')[0];
  TW_TRY(Check(table.load(device_, format.c_str(), bytes.data(), bytes.size(), &code)));
  for (const codegen::Launch& launch : plan.launches) TW_TRY(Launch(plan, launch, code, sizes));
  for (size_t i = 0; i < plan.num_params; ++i) {
    auto bytes = static_cast<int64_t>(args[i]->bytes.size());
    TW_TRY(Check(table.read(device_, {memory_[i], 0}, args[i]->bytes.data(), bytes)));
  }
  table.unload(device_, code);
  for (TwDeviceMemory* m : memory_) table.free(device_, m);
  memory_.clear();
  return absl::OkStatus();
}

}  // namespace tilewright::tests
