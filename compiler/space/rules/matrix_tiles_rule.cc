// matrix_tiles: the default schedule of a matrix unit with its decisions as knobs. The memories'
// limits are exact (compiler/space/matrix_tiles.h), so every feasible point fits. The first
// value of every knob leaves the decision to the estimate: the default is a point of the space. The
// estimate of tiles is that of the points.
#include <algorithm>
#include <iterator>
#include <optional>

#include "compiler/space/block_info.h"
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
    std::vector<int64_t> threads(std::begin(kMatrixThreads), std::end(kMatrixThreads));
    threads.push_back(0);
    std::sort(threads.begin(), threads.end());
    threads_ = knob("threads", std::move(threads));
    if (problem_.image) width_ = knob("planes", MenuOf(problem_.width));
  }
  std::string name() const override { return "matrix_tiles"; }
  std::optional<std::vector<int>> DefaultChoices() const override { return FirstChoices(); }

  bool Feasible(const Point& point) const override {
    return BestTile(target_.machine.matrix, problem_, TileOf(point)).has_value();
  }

  std::optional<double> Estimate(const Point& point) const override {
    const target::MatrixUnit& unit = target_.machine.matrix;
    const std::optional<MatrixTile> tile = BestTile(unit, problem_, TileOf(point));
    if (!tile.has_value()) return std::nullopt;
    return TileCycles(unit, problem_, *tile);
  }

  std::vector<Point> BestPoints(size_t most) const override {
    std::vector<MatrixTile> tiles = TilesByEstimate(target_.machine.matrix, problem_);
    tiles.resize(std::min(tiles.size(), most));
    std::vector<Point> points;
    for (const MatrixTile& tile : tiles) points.push_back(PointOf(tile));
    return points;
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
  Point PointOf(const MatrixTile& tile) const {
    Point point{0, std::vector<int>(knobs_.size())};
    const auto choose = [&](size_t knob, int64_t value) {
      const std::vector<int64_t>& menu = knobs_[knob].menu;
      point.choices[knob] =
          static_cast<int>(std::find(menu.begin(), menu.end(), value) - menu.begin());
    };
    choose(rows_, tile.rows);
    choose(columns_, tile.columns);
    choose(steps_, tile.steps);
    choose(threads_, tile.threads);
    if (width_) choose(*width_, tile.width);
    return point;
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
