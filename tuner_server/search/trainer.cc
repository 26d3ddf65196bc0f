#include "tuner_server/search/trainer.h"

#include <utility>
#include <vector>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::search {
namespace {

constexpr size_t kMinTrainRows = 12;
constexpr int kHeldOutOneIn = 5;
// A retrained model must not order held-out pairs much worse than the prior does.
constexpr double kGateSlack = 0.05;
constexpr int kMinGatePairs = 20;

std::vector<cost_model::FeatureVector> Rows(const cost_model::Dataset& data) {
  std::vector<cost_model::FeatureVector> rows;
  for (const cost_model::DataRow& row : data.rows) rows.push_back(row.features);
  return rows;
}

absl::StatusOr<cost_model::RankQuality> Judge(cost_model::CostModel* model,
                                              const cost_model::Dataset& data) {
  TW_ASSIGN(std::vector<float> scores, model->Predict(Rows(data)));
  return cost_model::MeasureRanking(data, scores);
}

bool CanJudge(const TrainingInput& input) {
  return input.all.rows.size() >= kMinTrainRows && input.train.rows.size() >= kMinTrainRows / 2 &&
         input.held_out.rows.size() >= 2;
}

}  // namespace

absl::StatusOr<TrainingInput> PrepareTraining(cost_model::Dataset all, uint64_t seed,
                                              std::string base, cost_model::CostModel* previous,
                                              bool has_previous) {
  TrainingInput input;
  input.seed = seed;
  input.base = std::move(base);
  cost_model::SplitHeldOut(all, kHeldOutOneIn, &input.train, &input.held_out);
  input.all = std::move(all);
  if (has_previous && CanJudge(input)) {
    TW_ASSIGN(const cost_model::RankQuality before, Judge(previous, input.held_out));
    input.previous_recall_at_8 = before.recall_at_8;
  }
  return input;
}

// Fills in the metrics; a model that orders held-out pairs badly does not replace.
static absl::Status JudgeTwin(const TrainingInput& input, TrainedModel* out) {
  const cost_model::Dataset& held_out = input.held_out;
  std::unique_ptr<cost_model::CostModel> twin =
      cost_model::MakeXgbModel(input.seed, input.base, input.features);
  if (!twin->Fit(input.train).ok()) return absl::OkStatus();
  TW_ASSIGN(const cost_model::RankQuality learned, Judge(twin.get(), held_out));
  TW_ASSIGN(const cost_model::RankQuality prior,
            Judge(cost_model::MakePriorModel(input.features).get(), held_out));
  out->metrics.set_pairwise_accuracy(learned.pairwise_accuracy);
  out->metrics.set_recall_at_8(learned.recall_at_8);
  out->metrics.set_prior_recall_at_8(prior.recall_at_8);
  out->metrics.set_previous_recall_at_8(input.previous_recall_at_8);
  cost_model::RankQuality floor = prior;
  if (!input.base.empty()) {
    const auto untrained = cost_model::MakeXgbModel(input.seed, "", input.features);
    TW_TRY(untrained->Load(input.base));
    TW_ASSIGN(floor, Judge(untrained.get(), held_out));
  }
  if (learned.pairs >= kMinGatePairs &&
      learned.pairwise_accuracy + kGateSlack < floor.pairwise_accuracy) {
    out->replaces = false;
    out->reason = support::StrCat(
        "orders ", support::FormatFixed(100 * learned.pairwise_accuracy, 1),
        " % of held-out pairs, the ", input.base.empty() ? "prior " : "shipped model ",
        support::FormatFixed(100 * floor.pairwise_accuracy, 1), " %");
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainedModel> TrainAndJudge(const TrainingInput& input) {
  TrainedModel out;
  const size_t rows = input.all.rows.size();
  out.metrics.set_train_rows(static_cast<int32_t>(rows));
  if (rows < kMinTrainRows) {
    out.reason =
        support::StrCat("expected at least ", kMinTrainRows, " measured rows, found ", rows);
    return out;
  }
  out.metrics.set_held_out_rows(static_cast<int32_t>(input.held_out.rows.size()));
  out.replaces = true;
  if (CanJudge(input)) TW_TRY(JudgeTwin(input, &out));
  out.model = cost_model::MakeXgbModel(input.seed, input.base, input.features);
  TW_TRY(out.model->Fit(input.all));
  out.metrics.set_rounds(cost_model::TrainingRounds(rows, !input.base.empty()));
  return out;
}

}  // namespace tilewright::search
