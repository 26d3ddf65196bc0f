// matrix_tiles: the default schedule of a matrix unit with its decisions as knobs. The memories'
// limits are exact (compiler/space/matrix_tiles.h), so every feasible point fits. The first
// value of every knob leaves the decision to the estimate: the default is a point of the space.
#include <optional>

#include "compiler/space/default_schedule.h"
#include "compiler/space/matrix_tiles.h"
#include "compiler/space/rules/rules.h"

namespace tilewright::space {
namespace {

class MatrixTiles final : public Sketch {
 public:
  MatrixTiles(MatrixProblem problem, const target::Target& target)
      : target_(target), problem_(std::move(problem)) {
    const KnobAdder knob = Adder(problem_.key());
    rows_ = knob("rows", MenuOf(problem_.rows));
    columns_ = knob("vectors", MenuOf(problem_.columns));
    steps_ = knob("unroll", MenuOf(problem_.steps));
    threads_ = knob("threads", {0, 1, 2, 4});
    if (problem_.image) width_ = knob("planes", MenuOf(problem_.width));
  }
  std::string name() const override { return "matrix_tiles"; }
  bool starts_at_default() const override { return true; }

  bool Feasible(const Point& point) const override {
    return BestTile(target_.machine.matrix, problem_, TileOf(point)).has_value();
  }

  absl::Status Apply(const Point& point, schedule::Schedule* s) const override {
    const MatrixTile tile = TileOf(point);
    Choices choices;
    BlockChoice& choice = choices[problem_.key()];
    choice.rows = tile.rows;
    choice.vectors = tile.columns;
    choice.unroll = tile.steps;
    choice.threads = tile.threads;
    choice.planes = tile.width;
    ApplyDefaultSchedule(target_, choices, s);
    return absl::OkStatus();
  }

 private:
  // 0: by the estimate.
  static std::vector<int64_t> MenuOf(int64_t n) {
    std::vector<int64_t> menu = Divisors(n, 1, n);
    menu.insert(menu.begin(), 0);
    return menu;
  }
  MatrixTile TileOf(const Point& point) const {
    return {Value(point, rows_), Value(point, columns_), Value(point, steps_),
            Value(point, threads_), width_ ? Value(point, *width_) : 0};
  }

  target::Target target_;
  const MatrixProblem problem_;
  size_t rows_, columns_, steps_, threads_;
  std::optional<size_t> width_;  // of an image
};

}  // namespace

std::vector<std::unique_ptr<Sketch>> MakeMatrixTiles(const ir::Function& function,
                                                     const target::Target& target) {
  std::vector<std::unique_ptr<Sketch>> out;
  auto problem = MatrixProblemOf(function, target.machine.matrix);
  if (problem.has_value()) {
    out.push_back(std::make_unique<MatrixTiles>(*std::move(problem), target));
  }
  return out;
}

}  // namespace tilewright::space
