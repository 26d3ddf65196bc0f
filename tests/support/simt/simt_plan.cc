#include "tests/support/simt/simt_plan.h"

#include <cstring>
#include <utility>

#include "deploy/support/status.h"

namespace tilewright::simt {
namespace {

using SizeValues = std::vector<std::pair<ir::Var, int64_t>>;

absl::StatusOr<std::vector<void*>> Allocate(const codegen::HostPlan& plan, const SizeValues& values,
                                            const std::vector<ir::TensorData*>& args,
                                            Memory* memory) {
  std::vector<void*> buffers;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const ir::BufferNode& buffer = *plan.buffers[i];
    int64_t bytes = buffer.dtype.bytes();
    for (const ir::Expr& e : buffer.shape) {
      TW_ASSIGN(const int64_t extent, ir::EvalIntExpr(e, values));
      bytes *= extent;
    }
    void* address = memory->Allocate(static_cast<size_t>(bytes),
                                     static_cast<size_t>(buffer.dtype.bytes()), buffer.name);
    if (address == nullptr)
      return support::ResourceExhausted("simt.memory", "no room for " + buffer.name);
    buffers.push_back(address);
    if (i >= args.size()) continue;
    args[i]->bytes.resize(static_cast<size_t>(bytes));
    std::memcpy(address, args[i]->bytes.data(), args[i]->bytes.size());
    if (buffer.role != ir::Role::kOutput) memory->MarkWritten(address, static_cast<size_t>(bytes));
  }
  return buffers;
}

absl::StatusOr<LaunchRequest> RequestOf(const CompiledPlan& compiled, size_t launch,
                                        const SizeValues& values,
                                        const std::vector<void*>& buffers) {
  const codegen::Launch& l = compiled.plan.launches[launch];
  LaunchRequest request{.kernel = compiled.kernels[launch]};
  request.dynamic_shared_bytes = request.kernel.dynamic_shared_bytes;
  for (size_t a = 0; a < 3; ++a) {
    TW_ASSIGN(request.groups[a], ir::EvalIntExpr(l.grid[a], values));
    TW_ASSIGN(request.threads[a], ir::EvalIntExpr(l.group[a], values));
  }
  for (const auto& [var, size] : values) request.arguments.push_back(static_cast<uint64_t>(size));
  for (int i : l.arguments)
    request.arguments.push_back(reinterpret_cast<uint64_t>(buffers[static_cast<size_t>(i)]));
  for (const auto& [number, row, rows, box_columns, box_rows] : request.kernel.maps) {
    const auto buffer = static_cast<size_t>(l.arguments.at(static_cast<size_t>(number)));
    const auto bytes = static_cast<uint64_t>(compiled.plan.buffers[buffer]->dtype.bytes());
    const auto columns = static_cast<uint64_t>(row);
    request.maps.push_back({static_cast<const char*>(buffers[buffer]), columns,
                            static_cast<uint64_t>(rows), columns * bytes,
                            static_cast<unsigned>(box_columns), static_cast<unsigned>(box_rows),
                            static_cast<unsigned>(bytes)});
  }
  return request;
}

}  // namespace

absl::StatusOr<std::vector<CompiledPlan>> CompilePlans(const std::vector<PlanText>& texts) {
  std::vector<Text> sources;
  for (const PlanText& t : texts) {
    Text& source = sources.emplace_back(Text{t.language, t.text, {}, t.warp});
    for (const codegen::Launch& l : t.plan.launches) source.kernels.push_back(l.kernel.name);
  }
  TW_ASSIGN(auto kernels, Compile(sources));
  std::vector<CompiledPlan> plans;
  for (size_t i = 0; i < texts.size(); ++i) plans.push_back({texts[i].plan, std::move(kernels[i])});
  return plans;
}

absl::Status RunPlan(const CompiledPlan& compiled, const std::vector<int64_t>& sizes,
                     const std::vector<ir::TensorData*>& args, Traffic* traffic) {
  const codegen::HostPlan& plan = compiled.plan;
  SizeValues values;
  for (size_t i = 0; i < sizes.size(); ++i) values.emplace_back(plan.size_params[i], sizes[i]);
  Emulator emulator;
  TW_ASSIGN(const std::vector<void*> buffers, Allocate(plan, values, args, &emulator.memory()));
  for (size_t l = 0; l < plan.launches.size(); ++l) {
    TW_ASSIGN(LaunchRequest request, RequestOf(compiled, l, values, buffers));
    request.count_traffic = traffic != nullptr;
    TW_TRY(emulator.Launch(request));
    if (traffic != nullptr) *traffic = *traffic + emulator.traffic();
  }
  for (size_t i = 0; i < plan.num_params; ++i)
    std::memcpy(args[i]->bytes.data(), buffers[i], args[i]->bytes.size());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TrafficParts>> CountPlan(const CompiledPlan& compiled, int64_t groups) {
  Emulator emulator;
  emulator.memory().AllowUnwritten(true);
  TW_ASSIGN(const std::vector<void*> buffers, Allocate(compiled.plan, {}, {}, &emulator.memory()));
  std::vector<TrafficParts> counts;
  for (size_t l = 0; l < compiled.plan.launches.size(); ++l) {
    TW_ASSIGN(LaunchRequest request, RequestOf(compiled, l, {}, buffers));
    request.count_traffic = true;
    request.most_groups = groups;
    TW_TRY(emulator.Launch(request));
    counts.push_back(emulator.traffic_parts());
  }
  return counts;
}

}  // namespace tilewright::simt
