#include "cost_model/pair_objective.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tilewright::cost_model {
namespace {

constexpr int kPartners = 4;  // per row and round; 2 order held-out networks a little worse
// A pair is settled where its scores are some 1/k apart: a sixth of the slower's time at 4.
constexpr float kSteepness = 4;
constexpr float kSquaredErrorShare = 0.3F;
constexpr float kNoise = 0.0286F;  // log2(1.02): programs that close have no order
constexpr float kLeastCurvature = 1e-3F;

}  // namespace

PairObjective::PairObjective(const Dataset& data, std::vector<float> labels,
                             std::vector<float> offsets, std::vector<float> targets,
                             std::vector<float> weights, uint64_t seed)
    : tasks_(static_cast<size_t>(data.num_groups())),
      labels_(std::move(labels)),
      offsets_(std::move(offsets)),
      targets_(std::move(targets)),
      weights_(std::move(weights)),
      rng_(seed) {
  for (size_t i = 0; i < data.rows.size(); ++i) {
    tasks_[static_cast<size_t>(data.rows[i].group)].push_back(i);
  }
}

void PairObjective::Differentiate(const std::vector<float>& trees, std::vector<float>* gradient,
                                  std::vector<float>* hessian) {
  gradient->assign(trees.size(), 0);
  hessian->assign(trees.size(), 0);
  for (const std::vector<size_t>& rows : tasks_) {
    if (rows.size() < 2) continue;
    for (size_t i = 0; i < rows.size(); ++i) {
      for (int k = 0; k < kPartners; ++k) {
        const size_t other = (i + 1 + rng_.Uniform(rows.size() - 1)) % rows.size();
        ComparePair(rows[i], rows[other], trees, gradient, hessian);
      }
    }
  }
  for (size_t i = 0; i < trees.size(); ++i) {
    const float weight = kSquaredErrorShare * weights_[i];
    (*gradient)[i] += weight * (trees[i] - targets_[i]);
    (*hessian)[i] += weight;
  }
}

void PairObjective::ComparePair(size_t a, size_t b, const std::vector<float>& trees,
                                std::vector<float>* gradient, std::vector<float>* hessian) const {
  const size_t fast = labels_[a] > labels_[b] ? a : b, slow = fast == a ? b : a;
  if (labels_[fast] - labels_[slow] < kNoise) return;
  const float apart = trees[fast] + offsets_[fast] - trees[slow] - offsets_[slow];
  const float wrong = 1 / (1 + std::exp(kSteepness * apart));
  // A row is in 2 * kPartners pairs, on average.
  const float weight = std::exp2(labels_[fast]) / (2 * kPartners);
  const float slope = weight * kSteepness * wrong;
  const float curvature =
      weight * kSteepness * kSteepness * std::max(wrong * (1 - wrong), kLeastCurvature);
  (*gradient)[fast] -= slope;
  (*gradient)[slow] += slope;
  (*hessian)[fast] += curvature;
  (*hessian)[slow] += curvature;
}

}  // namespace tilewright::cost_model
