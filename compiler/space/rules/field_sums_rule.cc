// field_sums: products of fields of words with fixed-point activations (space/field_sums.h): the
// default schedule with the number of column blocks in registers as a knob. More of them read the
// activations' limbs less often.
#include "compiler/space/default_schedule.h"
#include "compiler/space/field_sums.h"
#include "compiler/space/rules/rules.h"

namespace tilewright::space {
namespace {

class FieldSumsSketch final : public Sketch {
 public:
  FieldSumsSketch(FieldSums fields, const target::Target& target)
      : fields_(std::move(fields)), target_(target) {
    blocks_ = AddKnob("column_blocks", {1, 2, 3, 4});
  }
  std::string name() const override { return "field_sums"; }
  std::optional<std::vector<int>> DefaultChoices() const override { return FirstChoices(); }

  bool Feasible(const Point& point) const override {
    constexpr int64_t kLimbs = 3, kOthers = 4;  // the mask, words, both their halves
    const int64_t vectors = Value(point, blocks_) * (fields_.block / fields_.lanes);
    return vectors * (kLimbs + 1) + kOthers <= target_.machine.vector_registers ||
           Value(point, blocks_) == 1;
  }

  absl::Status Apply(const Point& point, schedule::Schedule* s) const override {
    const int64_t blocks = Value(point, blocks_);
    ApplyDefaultSchedule(target_, {{fields_.result, {.vectors = blocks > 1 ? blocks : 0}}}, s);
    return absl::OkStatus();
  }

 private:
  FieldSums fields_;
  target::Target target_;
  size_t blocks_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Sketch>> MakeFieldSums(const ir::Function& function,
                                                   const target::Target& target) {
  std::vector<std::unique_ptr<Sketch>> out;
  if (auto fields = FindFieldSums(function, target.machine); fields.has_value()) {
    out.push_back(std::make_unique<FieldSumsSketch>(*std::move(fields), target));
  }
  return out;
}

}  // namespace tilewright::space
