#include "deploy/runtime/transfer_plan.h"

namespace tilewright::runtime {
namespace {

using module::Launch;
using module::TensorKind;
using Kind = ExecutionStep::Kind;

constexpr uint8_t kHost = 1, kDevice = 2;

class Planner {
 public:
  Planner(const module::Manifest& manifest, const std::function<bool(const Launch&)>& on_device)
      : manifest_(manifest), on_device_(on_device), valid_(manifest.tensors.size(), 0) {
    for (const module::Tensor& tensor : manifest.tensors) {
      if (tensor.kind == TensorKind::kConstant) valid_[Index(tensor.id)] = kHost | kDevice;
    }
  }

  void NewInputs(const module::Function& function) {
    for (int64_t id : function.inputs) valid_[Index(id)] = kHost;
  }

  void Walk(const std::vector<Launch>& launches, std::vector<ExecutionStep>* steps) {
    for (size_t i = 0; i < launches.size(); ++i) {
      const Launch& launch = launches[i];
      const uint8_t side = SideOf(launch);
      // A launch may add to what it writes.
      for (int64_t id : launch.args) Move(id, side, steps);
      steps->push_back({side == kHost ? Kind::kHostLaunch : Kind::kDeviceLaunch, i});
      const size_t first_output = launch.args.size() - static_cast<size_t>(launch.num_outputs);
      for (size_t a = first_output; a < launch.args.size(); ++a)
        valid_[Index(launch.args[a])] = side;
    }
  }

  void MovePrepared(const std::vector<Launch>& users, std::vector<ExecutionStep>* steps) {
    for (const Launch& launch : users) {
      for (int64_t id : launch.args) {
        if (manifest_.tensors[Index(id)].kind == TensorKind::kPrepared)
          Move(id, SideOf(launch), steps);
      }
    }
  }

  // Makes the tensor valid on `side` if it is valid anywhere.
  void Move(int64_t id, uint8_t side, std::vector<ExecutionStep>* steps) {
    uint8_t& valid = valid_[Index(id)];
    if (valid == 0 || (valid & side) != 0) return;
    steps->push_back({side == kDevice ? Kind::kUpload : Kind::kDownload, Index(id)});
    valid |= side;
  }

 private:
  static size_t Index(int64_t id) { return static_cast<size_t>(id); }
  uint8_t SideOf(const Launch& launch) const { return on_device_(launch) ? kDevice : kHost; }

  const module::Manifest& manifest_;
  const std::function<bool(const Launch&)>& on_device_;
  std::vector<uint8_t> valid_;  // by tensor
};

}  // namespace

ExecutionPlan PlanExecution(const module::Manifest& manifest, const module::Function& function,
                            const std::function<bool(const module::Launch&)>& on_device) {
  ExecutionPlan plan;
  Planner planner(manifest, on_device);
  planner.NewInputs(function);
  planner.Walk(function.prepare, &plan.prepare);
  planner.MovePrepared(function.launches, &plan.prepare);
  planner.NewInputs(function);
  planner.Walk(function.launches, &plan.run);
  for (int64_t id : function.outputs) planner.Move(id, kHost, &plan.run);
  for (const module::SizeCheck& check : function.checks) {
    planner.Move(check.tensor, kHost, &plan.run);
  }
  return plan;
}

}  // namespace tilewright::runtime
