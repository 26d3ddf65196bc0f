// What the trees of a model of many tasks are fitted to: the order of each task's programs, mostly,
// and a little of how far apart they are. A pair of a task's programs costs
//   -log(sigmoid(k * (score of the faster - score of the slower)))
// weighted by how near its faster one comes to the task's best (RankNet: Burges et al., ICML 2005).
// An additional squared error keeps scores in units of log2 of time: training on a job's own rows
// continues from them.
#pragma once

#include <cstdint>
#include <vector>

#include "cost_model/dataset.h"
#include "deploy/support/rng.h"

namespace tilewright::cost_model {

class PairObjective {
 public:
  // One value per row of the data: `labels` as Labels() makes them; `offsets` are added to what the
  // trees say before programs are compared; `targets` and `weights` are the squared error's.
  PairObjective(const Dataset& data, std::vector<float> labels, std::vector<float> offsets,
                std::vector<float> targets, std::vector<float> weights, uint64_t seed);

  // The first two derivatives at what the trees say now, `trees`. Every call compares each row with
  // other partners of its task, chosen at random.
  void Differentiate(const std::vector<float>& trees, std::vector<float>* gradient,
                     std::vector<float>* hessian);

 private:
  void ComparePair(size_t a, size_t b, const std::vector<float>& trees,
                   std::vector<float>* gradient, std::vector<float>* hessian) const;

  std::vector<std::vector<size_t>> tasks_;  // rows of each
  std::vector<float> labels_, offsets_, targets_, weights_;
  support::Rng rng_;
};

}  // namespace tilewright::cost_model
