// Rows for training and judging cost models, and the measures of a ranking. A group is one task on
// one target: only rows of one group are ever compared. Plain values.
#pragma once

#include <string>
#include <vector>

#include "cost_model/features.h"

namespace tilewright::cost_model {

struct DataRow {
  FeatureVector features;
  int group = 0;
  double time_ns = 0;  // 0: infeasible (a failed candidate)
};

struct Dataset {
  std::vector<DataRow> rows;
  int num_groups() const;
};

// Deterministic by content: about one row in `one_in` goes to the held-out part, by the hash of its
// features, so that a growing log keeps its split.
void SplitHeldOut(const Dataset& all, int one_in, Dataset* train, Dataset* held_out);

// Larger label = better, comparable within a group: log2(best time of the group / time); infeasible
// rows get one less than the group's worst.
std::vector<float> Labels(const Dataset& data);

struct RankQuality {
  double pairwise_accuracy = 0;  // pairs of a group more than 2 % apart that are ordered right
  double recall_at_8 = 0;        // of the true best 8 of a group, share among the predicted best 8
  double best_at_1 = 0;          // best time / time of the predicted best, averaged over groups
  double best_at_8 = 0;          // the same with the best of the predicted best 8
  int pairs = 0;
  int groups = 0;  // groups with at least two rows
};
// `scores` in row order; larger = better.
RankQuality MeasureRanking(const Dataset& data, const std::vector<float>& scores);

}  // namespace tilewright::cost_model
