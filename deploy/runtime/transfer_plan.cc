#include "deploy/runtime/transfer_plan.h"

#include <algorithm>
#include <map>

#include "deploy/module/found_vars.h"
#include "deploy/module/loops_check.h"

namespace tilewright::runtime {
namespace {

using module::Function;
using module::Launch;
using module::Loop;
using module::Tensor;
using module::TensorKind;
using Kind = ExecutionStep::Kind;

constexpr uint8_t kHost = 1, kDevice = 2;

size_t Index(int64_t id) { return static_cast<size_t>(id); }

// Which of the tensors with places in the arena was written last where. A tensor whose place is
// written again is dead.
class Owners {
 public:
  explicit Owners(const std::vector<Tensor>& tensors) : tensors_(tensors) {}

  void Forget() { by_begin_.clear(); }

  void Write(int64_t id) {
    if (!HasPlace(id)) return;
    const Tensor& tensor = tensors_[Index(id)];
    for (const int64_t other : Overlapping(id)) by_begin_.erase(tensors_[Index(other)].offset);
    by_begin_[tensor.offset] = id;
  }

  // What was written into the tensor's place; itself where nothing was.
  std::vector<int64_t> WrittenAs(int64_t id) const {
    if (!HasPlace(id)) return {id};
    std::vector<int64_t> owners = Overlapping(id);
    const bool own = std::ranges::find(owners, id) != owners.end();
    if (own || owners.empty()) return {id};
    return owners;
  }

  bool Has(int64_t id) const {
    const auto it = by_begin_.find(tensors_[Index(id)].offset);
    return it != by_begin_.end() && it->second == id;
  }
  bool IsWritten(int64_t id) const { return HasPlace(id) && !Overlapping(id).empty(); }

 private:
  bool HasPlace(int64_t id) const {
    const Tensor& tensor = tensors_[Index(id)];
    return tensor.kind == TensorKind::kIntermediate && tensor.after.empty() && tensor.bytes > 0;
  }

  // They are apart, so the first that may reach the place is the last that begins before it.
  std::vector<int64_t> Overlapping(int64_t id) const {
    const int64_t begin = tensors_[Index(id)].offset, end = begin + tensors_[Index(id)].bytes;
    std::vector<int64_t> found;
    auto it = by_begin_.upper_bound(begin);
    if (it != by_begin_.begin()) --it;
    for (; it != by_begin_.end() && it->first < end; ++it) {
      if (it->first + tensors_[Index(it->second)].bytes > begin) found.push_back(it->second);
    }
    return found;
  }

  const std::vector<Tensor>& tensors_;
  std::map<int64_t, int64_t> by_begin_;
};

class Planner {
 public:
  Planner(const module::Manifest& manifest, const Function& function, const OnDevice& on_device)
      : manifest_(manifest),
        function_(function),
        on_device_(on_device),
        finds_(module::FoundSizes(manifest, function)),
        loop_of_check_(module::LoopsOfChecks(function)),
        valid_(manifest.tensors.size(), 0),
        owners_(manifest.tensors) {
    for (const Tensor& tensor : manifest.tensors) {
      if (tensor.kind == TensorKind::kConstant) valid_[Index(tensor.id)] = kHost | kDevice;
    }
  }

  ExecutionPlan Run() {
    NewInputs();
    steps_ = &plan_.prepare;
    for (size_t i = 0; i < function_.prepare.size(); ++i) AddLaunch(function_.prepare[i], i);
    MovePrepared();
    ForgetIntermediates();
    NewInputs();
    steps_ = &plan_.run;
    plan_.loops.resize(function_.loops.size());
    Walk(0, function_.launches.size(), function_.loops.size());
    for (int64_t id : function_.outputs) Move(id, kHost);
    for (const module::SizeCheck& check : function_.checks) Move(check.tensor, kHost);
    return std::move(plan_);
  }

 private:
  uint8_t SideOf(const Launch& launch) const { return on_device_(launch) ? kDevice : kHost; }

  void NewInputs() {
    for (int64_t id : function_.inputs) valid_[Index(id)] = kHost;
  }

  // They are dead between preparing and a run.
  void ForgetIntermediates() {
    owners_.Forget();
    for (const Tensor& tensor : manifest_.tensors) {
      if (tensor.kind == TensorKind::kIntermediate) valid_[Index(tensor.id)] = 0;
    }
  }

  void MovePrepared() {
    for (const Launch& launch : function_.launches) {
      for (int64_t id : launch.args) {
        if (manifest_.tensors[Index(id)].kind == TensorKind::kPrepared) Move(id, SideOf(launch));
      }
    }
  }

  void Walk(size_t begin, size_t end, size_t loops) {
    for (size_t i = begin; i < end;) {
      const int loop =
          module::LoopAt(function_, static_cast<int64_t>(i), static_cast<int64_t>(end), loops);
      if (loop < 0) {
        AddLaunch(function_.launches[i], i);
        AfterLaunch(i);
        ++i;
        continue;
      }
      AddLoop(static_cast<size_t>(loop));
      i = static_cast<size_t>(function_.loops[static_cast<size_t>(loop)].end);
    }
  }

  void AddLaunch(const Launch& launch, size_t index) {
    const uint8_t side = SideOf(launch);
    const std::vector<int64_t> outputs = OutputsOf(launch);
    for (size_t a = 0; a + outputs.size() < launch.args.size(); ++a)
      MoveAsWritten(launch.args[a], side);
    // A launch may add to what it writes.
    for (int64_t id : outputs) {
      if (!owners_.IsWritten(id) || owners_.Has(id)) Move(id, side);
    }
    steps_->push_back({side == kHost ? Kind::kHostLaunch : Kind::kDeviceLaunch, index});
    for (int64_t id : outputs) Write(id, side);
  }

  static std::vector<int64_t> OutputsOf(const Launch& launch) {
    return {launch.args.end() - launch.num_outputs, launch.args.end()};
  }

  // What the host looks at before the run goes on.
  void AfterLaunch(size_t index) {
    const std::vector<int64_t> outputs = OutputsOf(function_.launches[index]);
    for (int64_t id : outputs) {
      if (manifest_.tensors[Index(id)].kind == TensorKind::kState) Move(id, kHost);
    }
    for (size_t c = 0; c < function_.checks.size(); ++c) {
      const int64_t looked_at = function_.checks[c].tensor;
      if (loop_of_check_[c] >= 0 && std::ranges::find(outputs, looked_at) != outputs.end())
        Move(looked_at, kHost);
    }
    bool finds = false;
    for (const module::FoundSize& find : finds_) {
      if (find.launch != index) continue;
      finds = true;
      Move(function_.checks[find.check].tensor, kHost);
    }
    if (finds) steps_->push_back({Kind::kFind, index});
  }

  void AddLoop(size_t index) {
    const Loop& loop = function_.loops[index];
    const std::set<int64_t> written = WrittenIn(loop);
    MoveWhatNoTripWrites(loop, written);
    ExecutionPlan::Loop& planned = plan_.loops[index];
    for (size_t c = 0; c < loop.carried.size(); ++c) {
      planned.on_device.push_back(c > 0 && StaysOnDevice(loop, loop.carried[c]));
      MoveAsWritten(loop.carried[c].init, SideOfCarried(planned, c));
    }
    // What a trip makes is not there at its begin.
    for (const int64_t id : written) valid_[Index(id)] = 0;
    WriteValues(loop, planned);
    for (const Loop::Stacked& stacked : loop.stacked) Write(stacked.whole, kHost);
    steps_->push_back({Kind::kLoop, index});
    const std::vector<uint8_t> before = valid_;
    Walk(static_cast<size_t>(loop.first), static_cast<size_t>(loop.end), index);
    for (const Loop::Stacked& stacked : loop.stacked) MoveAsWritten(stacked.part, kHost);
    for (size_t c = 0; c < loop.carried.size(); ++c) {
      MoveAsWritten(loop.carried[c].next, SideOfCarried(planned, c));
    }
    planned.end = steps_->size();
    // There may have been no trip, and so no copy.
    for (size_t id = 0; id < valid_.size(); ++id) {
      if (!written.contains(static_cast<int64_t>(id))) valid_[id] = before[id];
    }
    WriteValues(loop, planned);
    for (const Loop::Stacked& stacked : loop.stacked) Write(stacked.whole, kHost);
  }

  static uint8_t SideOfCarried(const ExecutionPlan::Loop& planned, size_t carried) {
    return planned.on_device[carried] ? kDevice : kHost;
  }

  void WriteValues(const Loop& loop, const ExecutionPlan::Loop& planned) {
    for (size_t c = 0; c < loop.carried.size(); ++c) {
      Write(loop.carried[c].value, SideOfCarried(planned, c));
    }
  }

  // By launches of the loop, and by it and the loops in it.
  std::set<int64_t> WrittenIn(const Loop& loop) const {
    std::set<int64_t> written;
    for (int64_t i = loop.first; i < loop.end; ++i) {
      for (int64_t id : OutputsOf(function_.launches[Index(i)])) written.insert(id);
    }
    for (const Loop& other : function_.loops) {
      if (other.first < loop.first || other.end > loop.end) continue;
      for (const Loop::Carried& carried : other.carried) written.insert(carried.value);
      for (const Loop::Stacked& stacked : other.stacked) written.insert(stacked.whole);
    }
    return written;
  }

  void MoveWhatNoTripWrites(const Loop& loop, const std::set<int64_t>& written) {
    Owners places(manifest_.tensors);
    for (const int64_t id : written) places.Write(id);
    for (int64_t i = loop.first; i < loop.end; ++i) {
      const Launch& launch = function_.launches[Index(i)];
      for (int64_t id : launch.args) {
        const bool changes = written.contains(id) || places.IsWritten(id);
        if (!changes) MoveAsWritten(id, SideOf(launch));
      }
    }
  }

  // A trip makes it on the device, for launches there only.
  bool StaysOnDevice(const Loop& loop, const Loop::Carried& carried) const {
    for (int64_t id : {carried.init, carried.value, carried.next}) {
      const Tensor& tensor = manifest_.tensors[Index(id)];
      if (module::IsOpen(tensor.shape) || tensor.kind == TensorKind::kConstant) return false;
    }
    bool reads = false, makes = false;
    for (int64_t i = loop.first; i < loop.end; ++i) {
      const Launch& launch = function_.launches[Index(i)];
      const bool here = on_device_(launch);
      const bool reads_value = std::ranges::find(launch.args, carried.value) != launch.args.end();
      if (reads_value && !here) return false;
      reads = reads || reads_value;
      const std::vector<int64_t> outputs = OutputsOf(launch);
      makes = makes || (here && std::ranges::find(outputs, carried.next) != outputs.end());
    }
    return reads && makes;
  }

  void Write(int64_t id, uint8_t side) {
    owners_.Write(id);
    valid_[Index(id)] = side;
  }

  void MoveAsWritten(int64_t id, uint8_t side) {
    for (const int64_t written : owners_.WrittenAs(id)) Move(written, side);
  }

  // Makes the tensor valid on `side` if it is valid anywhere.
  void Move(int64_t id, uint8_t side) {
    uint8_t& valid = valid_[Index(id)];
    if (valid == 0 || (valid & side) != 0) return;
    steps_->push_back({side == kDevice ? Kind::kUpload : Kind::kDownload, Index(id)});
    valid |= side;
  }

  const module::Manifest& manifest_;
  const Function& function_;
  const OnDevice& on_device_;
  const std::vector<module::FoundSize> finds_;
  const std::vector<int> loop_of_check_;
  std::vector<uint8_t> valid_;  // by tensor
  Owners owners_;
  ExecutionPlan plan_;
  std::vector<ExecutionStep>* steps_ = nullptr;
};

}  // namespace

ExecutionPlan PlanExecution(const module::Manifest& manifest, const Function& function,
                            const OnDevice& on_device) {
  return Planner(manifest, function, on_device).Run();
}

std::set<int64_t> TensorsOnDevice(const Function& function, const ExecutionPlan& plan,
                                  const OnDevice& on_device) {
  std::set<int64_t> tensors;
  for (const auto* launches : {&function.prepare, &function.launches}) {
    for (const Launch& launch : *launches) {
      if (on_device(launch)) tensors.insert(launch.args.begin(), launch.args.end());
    }
  }
  for (const auto* steps : {&plan.prepare, &plan.run}) {
    for (const ExecutionStep& step : *steps) {
      const bool moves = step.kind == Kind::kUpload || step.kind == Kind::kDownload;
      if (moves) tensors.insert(static_cast<int64_t>(step.index));
    }
  }
  for (size_t l = 0; l < plan.loops.size(); ++l) {
    for (size_t c = 0; c < plan.loops[l].on_device.size(); ++c) {
      const Loop::Carried& carried = function.loops[l].carried[c];
      if (plan.loops[l].on_device[c]) tensors.insert({carried.init, carried.value, carried.next});
    }
  }
  return tensors;
}

}  // namespace tilewright::runtime
