#include "cost_model/dataset.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "deploy/support/hash.h"
#include "deploy/support/status.h"

namespace tilewright::cost_model {
namespace {

constexpr double kNoiseRatio = 1.02;  // closer times are no order
constexpr size_t kTop = 8;

std::vector<std::vector<size_t>> RowsByGroup(const Dataset& data) {
  std::vector<std::vector<size_t>> groups(static_cast<size_t>(data.num_groups()));
  for (size_t i = 0; i < data.rows.size(); ++i) {
    groups[static_cast<size_t>(data.rows[i].group)].push_back(i);
  }
  return groups;
}

double TimeOf(const DataRow& row) {
  return row.time_ns > 0 ? row.time_ns : std::numeric_limits<double>::infinity();
}

// Indices of the group's rows, best first by `key` (smaller = better); ties by position.
template <typename Key>
std::vector<size_t> Sorted(std::vector<size_t> rows, const Key& key) {
  std::stable_sort(rows.begin(), rows.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return rows;
}

}  // namespace

int Dataset::num_groups() const {
  int groups = 0;
  for (const DataRow& row : rows) groups = std::max(groups, row.group + 1);
  return groups;
}

void SplitHeldOut(const Dataset& all, int one_in, Dataset* train, Dataset* held_out) {
  for (const DataRow& row : all.rows) {
    const uint64_t hash = support::StableHash64(FeaturesHash(row.features));
    (hash % static_cast<uint64_t>(one_in) == 0 ? held_out : train)->rows.push_back(row);
  }
}

std::vector<float> Labels(const Dataset& data) {
  const size_t groups = static_cast<size_t>(data.num_groups());
  std::vector<double> best(groups, std::numeric_limits<double>::infinity());
  std::vector<double> worst(groups, 0);
  for (const DataRow& row : data.rows) {
    if (!(row.time_ns > 0)) continue;
    auto& b = best[static_cast<size_t>(row.group)];
    auto& w = worst[static_cast<size_t>(row.group)];
    b = std::min(b, row.time_ns);
    w = std::max(w, row.time_ns);
  }
  std::vector<float> labels;
  for (const DataRow& row : data.rows) {
    const double b = best[static_cast<size_t>(row.group)];
    const double w = worst[static_cast<size_t>(row.group)];
    if (row.time_ns > 0) {
      labels.push_back(static_cast<float>(std::log2(b / row.time_ns)));
    } else {
      labels.push_back(static_cast<float>((w > 0 ? std::log2(b / w) : 0) - 1));
    }
  }
  return labels;
}

RankQuality MeasureRanking(const Dataset& data, const std::vector<float>& scores) {
  TW_CHECK(scores.size() == data.rows.size()) << "one score per row";
  RankQuality q;
  double right = 0;
  for (const std::vector<size_t>& rows : RowsByGroup(data)) {
    if (rows.size() < 2) continue;
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t j = i + 1; j < rows.size(); ++j) {
        size_t fast = rows[i], slow = rows[j];
        if (TimeOf(data.rows[slow]) < TimeOf(data.rows[fast])) std::swap(fast, slow);
        const double t_fast = TimeOf(data.rows[fast]), t_slow = TimeOf(data.rows[slow]);
        if (!std::isfinite(t_fast) || t_slow < t_fast * kNoiseRatio) continue;
        ++q.pairs;
        right += scores[fast] > scores[slow] ? 1 : scores[fast] == scores[slow] ? 0.5 : 0;
      }
    }
    const auto by_time = Sorted(rows, [&](size_t r) { return TimeOf(data.rows[r]); });
    const auto by_score = Sorted(rows, [&](size_t r) { return -scores[r]; });
    const double best = TimeOf(data.rows[by_time[0]]);
    if (!std::isfinite(best)) continue;
    ++q.groups;
    const size_t k = std::min(kTop, rows.size());
    double hits = 0, top8 = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < k; ++i) {
      hits += std::find(by_time.begin(), by_time.begin() + static_cast<std::ptrdiff_t>(k),
                        by_score[i]) != by_time.begin() + static_cast<std::ptrdiff_t>(k);
      top8 = std::min(top8, TimeOf(data.rows[by_score[i]]));
    }
    q.recall_at_8 += hits / static_cast<double>(k);
    q.best_at_1 += best / TimeOf(data.rows[by_score[0]]);
    q.best_at_8 += best / top8;
  }
  if (q.pairs > 0) q.pairwise_accuracy = right / q.pairs;
  if (q.groups > 0) {
    q.recall_at_8 /= q.groups;
    q.best_at_1 /= q.groups;
    q.best_at_8 /= q.groups;
  }
  return q;
}

}  // namespace tilewright::cost_model
