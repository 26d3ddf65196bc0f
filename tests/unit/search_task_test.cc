// The search of a task: picks are the top of what was considered, everything is rebuilt from what
// was told, and learning beats chance on a landscape that can be learned.
#include "tuner_server/search/search_task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/ir/structural.h"
#include "compiler/space/default_schedule.h"
#include "deploy/support/status.h"
#include "tests/support/te_programs.h"
#include "tuner_server/search/builder_messages.h"
#include "tuner_server/search/trainer.h"

namespace tilewright::search {
namespace {

constexpr double kFlops = 2.0 * 24 * 64 * 40;

std::unique_ptr<SearchTask> MakeTask(uint64_t seed, double exploration = 0.1,
                                     double descend = SearchOptions().descend_share) {
  SearchOptions options;
  options.descend_share = descend;
  options.seed = seed;
  options.considered = 256;
  options.fresh = 48;
  options.exploration_share = exploration;
  auto task =
      SearchTask::Create({{"direct", tests::DenseReluProgram(24, 64, 40)}}, kFlops,
                         *target::ParseTarget("cpu,arch=x86_64,cpu=znver3,threads=2"), options);
  TW_CHECK(task.ok()) << support::StatusText(task.status());
  return *std::move(task);
}

AskResult Ask(SearchTask* task, int count, const std::string& batch, cost_model::CostModel* model) {
  auto result = task->Ask(count, batch, model);
  TW_CHECK(result.ok()) << support::StatusText(result.status());
  return *std::move(result);
}

std::vector<std::string> Hashes(const AskResult& result) {
  std::vector<std::string> hashes;
  for (const Pick& pick : result.picks) hashes.push_back(pick.candidate.program_hash);
  return hashes;
}

// A made-up time that features can explain, but not the prior's own estimate.
double FakeTime(const cost_model::FeatureVector& features) {
  const double a = features[cost_model::FeatureIndex("tile.accumulators")];
  const double l = features[cost_model::FeatureIndex("loop.unrolled_reduction")];
  return 1000 * (1 + std::abs(a - 6) + 2 * std::abs(l - 2));
}

TEST(SearchTaskTest, PicksAreTheTopOfTheConsideredLessTheExploredShare) {
  auto task = MakeTask(1);
  auto model = cost_model::MakePriorModel();
  const AskResult result = Ask(task.get(), 20, "b1", model.get());
  EXPECT_GE(result.considered, 256);
  EXPECT_EQ(result.invalid, 0);
  ASSERT_EQ(result.picks.size(), 20U);
  int explored = 0;
  for (size_t i = 0; i < result.picks.size(); ++i) {
    if (result.picks[i].explored) {
      ++explored;
    } else {
      EXPECT_EQ(result.picks[i].rank, static_cast<int>(i) + 1);
    }
  }
  EXPECT_EQ(explored, 10) << "half, as long as nothing is known";
  EXPECT_EQ(result.exploration_share, 0.5);
  for (size_t i = 1; i < result.ranked.size(); ++i) {
    EXPECT_GE(result.ranked[i - 1].predicted, result.ranked[i].predicted);
  }
}

TEST(SearchTaskTest, SameSeedAndBatchGiveTheSamePicksAndOthersDiffer) {
  auto prior = cost_model::MakePriorModel();
  auto random = cost_model::MakeRandomModel(1);
  const auto one = Hashes(Ask(MakeTask(1).get(), 8, "b1", prior.get()));
  EXPECT_EQ(one, Hashes(Ask(MakeTask(1).get(), 8, "b1", prior.get())));
  EXPECT_NE(one, Hashes(Ask(MakeTask(2).get(), 8, "b1", prior.get())));
  EXPECT_NE(one, Hashes(Ask(MakeTask(1).get(), 8, "b2", prior.get())));
  EXPECT_NE(one, Hashes(Ask(MakeTask(1).get(), 8, "b1", random.get())));
}

// What the job's scheduler wants to know before anything is measured.
TEST(SearchTaskTest, ForeseenTimesAndGainsChangeNoPick) {
  auto task = MakeTask(1);
  auto prior = cost_model::MakePriorModel();
  const auto point = task->space().DefaultPoint();
  ASSERT_TRUE(point.has_value());
  const auto schedule = task->space().Apply(*point);
  ASSERT_TRUE(schedule.ok());
  const std::string steps = schedule::ToText(schedule->steps());
  const auto ns = task->EstimateNs(steps);
  const auto ns_unscheduled = task->EstimateNs("");
  ASSERT_TRUE(ns.ok() && ns_unscheduled.ok());
  EXPECT_GT(*ns, 0);
  EXPECT_GT(*ns_unscheduled, *ns);
  const auto gain = task->PredictGain(steps, 64, prior.get());
  const auto gain_unscheduled = task->PredictGain("", 64, prior.get());
  ASSERT_TRUE(gain.ok() && gain_unscheduled.ok());
  EXPECT_GE(*gain, 0);
  EXPECT_GT(*gain_unscheduled, *gain);
  EXPECT_EQ(support::Slug(task->EstimateNs("no such step").status()).substr(0, 9), "schedule.");
  EXPECT_EQ(Hashes(Ask(task.get(), 8, "b1", prior.get())),
            Hashes(Ask(MakeTask(1).get(), 8, "b1", prior.get())));
}

TEST(SearchTaskTest, APredictionIsTheBestOfThePoolAndChangesNoPick) {
  auto task = MakeTask(1);
  auto prior = cost_model::MakePriorModel();
  const auto best = task->PredictBest("", prior.get());
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_FALSE(best->steps.empty());
  EXPECT_GT(best->gain, 0);
  const auto predicted_ns = task->EstimateNs(best->steps);
  const auto unscheduled_ns = task->EstimateNs("");
  ASSERT_TRUE(predicted_ns.ok() && unscheduled_ns.ok());
  EXPECT_LT(*predicted_ns, *unscheduled_ns);
  const auto better = task->PredictBest(best->steps, prior.get());
  ASSERT_TRUE(better.ok());
  EXPECT_TRUE(better->steps.empty()) << "nothing promises more than the best";
  EXPECT_EQ(better->gain, 0);
  EXPECT_EQ(Hashes(Ask(task.get(), 8, "b1", prior.get())),
            Hashes(Ask(MakeTask(1).get(), 8, "b1", prior.get())));
}

// On devices of groups and threads mutations of the pool's best are asked for, too.
TEST(SearchTaskTest, APredictionByTheEstimateIsRefined) {
  const auto gain = [](int generations) {
    SearchOptions options;
    options.considered = 64;
    options.estimate_generations = generations;
    auto task = SearchTask::Create({{"direct", tests::DenseReluProgram(512, 1024, 768)}},
                                   2.0 * 512 * 1024 * 768, *target::ParseTarget("cuda,arch=sm_90"),
                                   options);
    TW_CHECK(task.ok()) << support::StatusText(task.status());
    auto prior = cost_model::MakePriorModel(cost_model::FeatureSet::kGroups);
    const auto best = (*task)->PredictBest("", prior.get());
    TW_CHECK(best.ok()) << support::StatusText(best.status());
    return best->gain;
  };
  EXPECT_GT(gain(6), gain(0) + 0.1);
}

// What a small launch takes to start hides what it gains, and is no error of the estimate.
TEST(SearchTaskTest, APredictionCountsWhatComesBehindTheLaunch) {
  auto task = SearchTask::Create({{"direct", tests::MatmulProgram(32, 32, 16)}}, 2.0 * 32 * 32 * 16,
                                 *target::ParseTarget("cuda,arch=sm_90"), {});
  TW_CHECK(task.ok()) << support::StatusText(task.status());
  auto prior = cost_model::MakePriorModel(cost_model::FeatureSet::kGroups);
  const std::string plain = "bind %0 blockIdx.x; bind %1 threadIdx.x";
  const auto best = (*task)->PredictBest(plain, prior.get());
  ASSERT_TRUE(best.ok()) << support::StatusText(best.status());
  ASSERT_FALSE(best->steps.empty());
  const double plain_ns = *(*task)->EstimateNs(plain), best_ns = *(*task)->EstimateNs(best->steps);
  EXPECT_GT(best->gain, 0);
  EXPECT_LT(plain_ns, 1.25 * best_ns);
}

TEST(SearchTaskTest, NothingIsPickedTwiceAlsoAfterARestart) {
  auto task = MakeTask(1);
  auto model = cost_model::MakePriorModel();
  std::set<std::string> seen;
  std::vector<Pick> all;
  for (int b = 0; b < 4; ++b) {
    for (Pick& pick : Ask(task.get(), 8, "b" + std::to_string(b), model.get()).picks) {
      EXPECT_TRUE(seen.insert(pick.candidate.program_hash).second);
      all.push_back(std::move(pick));
    }
  }
  auto restarted = MakeTask(1);
  for (const Pick& pick : all) {
    restarted->Tell({pick.candidate.program_hash, v1::OUTCOME_UNSPECIFIED, 0, true},
                    pick.candidate.steps);
  }
  for (const Pick& pick : Ask(restarted.get(), 16, "b0", model.get()).picks) {
    EXPECT_TRUE(seen.insert(pick.candidate.program_hash).second);
  }
}

// Packing of weights runs once, before anything is timed.
TEST(DraftMakerTest, WhatDependsOnWeightsOnlyIsNoPartOfTheFeatures) {
  auto space = Space::Create(tests::MatmulProgram(64, 256, 64),
                             *target::ParseTarget("cpu,arch=x86_64,cpu=znver3,threads=1"));
  ASSERT_TRUE(space.ok()) << support::StatusText(space.status());
  DraftMaker maker(space->get(), 2.0 * 64 * 256 * 64,
                   *target::ParseTarget("cpu,arch=x86_64,cpu=znver3,threads=1"));
  const auto column = [&](const char* steps, const char* name) {
    const auto made = maker.MakeFromSteps(steps);
    TW_CHECK(made.ok()) << support::StatusText(made.status());
    return made->features[cost_model::FeatureIndex(name)];
  };
  constexpr char kWeights[] = "cache_read %3 read=1 scope=global";
  constexpr char kInput[] = "cache_read %3 read=0 scope=global";
  EXPECT_EQ(column(kWeights, "work.statements"), column("", "work.statements"));
  EXPECT_EQ(column(kWeights, "time.other"), column("", "time.other"));
  EXPECT_GT(column(kInput, "work.statements"), column("", "work.statements"));
  EXPECT_GT(column(kInput, "time.other"), column("", "time.other"));
}

TEST(SearchTaskTest, TrainingRowsAreRebuiltFromStepsAlone) {
  auto task = MakeTask(1);
  auto model = cost_model::MakePriorModel();
  const AskResult result = Ask(task.get(), 10, "b", model.get());
  auto restarted = MakeTask(1);
  double time = 1000;
  for (const Pick& pick : result.picks) {
    const Told told{pick.candidate.program_hash, v1::OK, time += 10, false};
    task->Tell(told, pick.candidate.steps);
    restarted->Tell(told, pick.candidate.steps);
  }
  restarted->Tell({"0123456789abcdef", v1::OK, 5, false},
                  result.picks[0].candidate.steps);  // stale
  const auto before = task->TrainingRows(0), after = restarted->TrainingRows(0);
  ASSERT_EQ(before.size(), 10U);
  ASSERT_EQ(after.size(), 10U);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i].features, after[i].features);
    EXPECT_EQ(before[i].time_ns, after[i].time_ns);
  }
}

// A compiler for GPUs says how many registers a program has. Training sees that; of programs that
// were not compiled the search corrects its estimate, and logs what the model saw.
TEST(SearchTaskTest, ReportedRegistersTakeThePlaceOfEstimatedOnes) {
  const auto make = [] {
    SearchOptions options;
    options.considered = 48;
    options.fresh = 16;
    auto task =
        SearchTask::Create({{"direct", tests::DenseReluProgram(128, 256, 64)}},
                           2.0 * 128 * 256 * 64, *target::ParseTarget("cuda,arch=sm_90"), options);
    TW_CHECK(task.ok()) << support::StatusText(task.status());
    return *std::move(task);
  };
  const auto registers_of = [](const cost_model::FeatureVector& row) {
    const size_t at = cost_model::FeatureIndex("group.registers", cost_model::FeatureSet::kGroups);
    return std::exp2(static_cast<double>(row[at])) - 1;
  };
  const auto prior = cost_model::MakePriorModel(cost_model::FeatureSet::kGroups);
  auto task = make(), plain = make(), restarted = make();
  double time = 1000;
  const AskResult first = Ask(task.get(), 8, "b0", prior.get());
  for (const Pick& pick : first.picks) {
    const Candidate& c = pick.candidate;
    Told told{c.program_hash, v1::OK, time += 10, false, std::lround(2 * registers_of(c.features))};
    for (auto* with : {&task, &restarted}) (*with)->Tell(told, c.steps, space::PointText(c.point));
    told.registers = 0;
    plain->Tell(told, c.steps, space::PointText(c.point));
  }
  const auto rows = task->TrainingRows(0), known = restarted->TrainingRows(0);
  ASSERT_EQ(rows.size(), 8U);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(std::lround(registers_of(rows[i].features)),
              std::lround(2 * registers_of(first.picks[i].candidate.features)));
    EXPECT_EQ(rows[i].features, known[i].features);
  }
  const AskResult after = Ask(task.get(), 4, "b1", prior.get());
  const AskResult again = Ask(restarted.get(), 4, "b1", prior.get());
  const AskResult without = Ask(plain.get(), 4, "b1", prior.get());
  ASSERT_EQ(after.ranked.size(), without.ranked.size());
  for (size_t i = 0; i < after.ranked.size(); ++i) {
    const Candidate& c = after.ranked[i].candidate;
    ASSERT_EQ(c.program_hash, without.ranked[i].candidate.program_hash) << "the prior ranks";
    EXPECT_EQ(c.features, again.ranked[i].candidate.features);
    const double ratio =
        registers_of(c.features) / registers_of(without.ranked[i].candidate.features);
    EXPECT_GT(ratio, 1.4);
    EXPECT_LT(ratio, 2.1);
  }
}

// A search that is told a log goes on exactly as the one that wrote it: same pool, same order.
TEST(SearchTaskTest, ARestartedSearchGoesOnWithTheSamePicks) {
  auto model = cost_model::MakePriorModel();
  auto task = MakeTask(5);
  std::vector<std::pair<Told, Candidate>> log;
  double time = 2000;
  for (int b = 0; b < 4; ++b) {
    for (const Pick& pick : Ask(task.get(), 8, "b" + std::to_string(b), model.get()).picks) {
      const Candidate& c = pick.candidate;
      time = time * 16807 - std::floor(time * 16807 / 1999) * 1999 + 1;
      log.push_back({{c.program_hash, v1::OK, time, false}, c});
      task->Tell(log.back().first, c.steps, space::PointText(c.point));
    }
  }
  auto restarted = MakeTask(5);
  for (const auto& [told, c] : log) restarted->Tell(told, c.steps, space::PointText(c.point));
  const AskResult before = Ask(task.get(), 8, "b4", model.get());
  const AskResult after = Ask(restarted.get(), 8, "b4", model.get());
  EXPECT_EQ(Hashes(before), Hashes(after));
  ASSERT_EQ(before.ranked.size(), after.ranked.size());
  int mutations = 0;
  for (size_t i = 0; i < before.ranked.size(); ++i) {
    EXPECT_EQ(before.ranked[i].candidate.steps, after.ranked[i].candidate.steps);
    EXPECT_EQ(before.ranked[i].candidate.point, after.ranked[i].candidate.point);
    mutations += after.ranked[i].candidate.origin == Origin::kMutation;
  }
  EXPECT_GT(mutations, 8) << "points of the log are parents";
  // Without its points, or with those of another space, the log gives no parents but still counts.
  auto pointless = MakeTask(5);
  for (const auto& [told, c] : log) pointless->Tell(told, c.steps, "7:1,2,3");
  for (const Pick& pick : Ask(pointless.get(), 8, "b4", model.get()).ranked) {
    EXPECT_NE(pick.candidate.origin, Origin::kCrossover);
  }
}

TEST(PointTest, TextIsReadBackAndNonsenseIsRefused) {
  for (const Point& point : {Point{0, {}}, Point{2, {0, 13, 5}}}) {
    EXPECT_EQ(space::ParsePoint(space::PointText(point)), point);
  }
  for (const char* bad : {"", "1", ":1", "a:1", "1:1,", "1:-1", "1:1,x", "1:99999999999", "-1:0"}) {
    EXPECT_EQ(space::ParsePoint(bad), std::nullopt) << bad;
  }
}

// The best fake time after `batches` of 8 picks each.
double Search(const std::string& kind, uint64_t seed, int batches) {
  auto task = kind == "random" ? MakeTask(seed, 0.1, 0) : MakeTask(seed);
  std::unique_ptr<cost_model::CostModel> model =
      kind == "random" ? cost_model::MakeRandomModel(seed) : cost_model::MakePriorModel();
  double best = 1e12;
  cost_model::Dataset rows;
  for (int b = 0; b < batches; ++b) {
    for (const Pick& pick : Ask(task.get(), 8, "b" + std::to_string(b), model.get()).picks) {
      const double time = FakeTime(pick.candidate.features);
      best = std::min(best, time);
      rows.rows.push_back({pick.candidate.features, 0, time});
      task->Tell({pick.candidate.program_hash, v1::OK, time, false}, pick.candidate.steps);
    }
    if (kind != "xgboost" || rows.rows.size() < 16) continue;
    auto learned = cost_model::MakeXgbModel(seed);
    const absl::Status fitted = learned->Fit(rows);
    TW_CHECK(fitted.ok()) << support::StatusText(fitted);
    model = std::move(learned);
  }
  return best;
}

TEST(SearchTaskTest, FirstPicksAreOfManyMicroKernelsLaterOnesFollowTheModel) {
  auto task = MakeTask(1);
  auto model = cost_model::MakePriorModel();
  const auto kernel = [](const Pick& pick) {
    std::vector<float> values;
    for (const char* name : {"tile.lanes", "tile.accumulators", "tile.body_ops", "loop.guarded"}) {
      values.push_back(pick.candidate.features[cost_model::FeatureIndex(name)]);
    }
    return values;
  };
  std::set<std::vector<float>> kernels;
  int explored = 0;
  for (const char* batch : {"b1", "b2"}) {
    const AskResult result = Ask(task.get(), 8, batch, model.get());
    for (const Pick& pick : result.picks) {
      const bool fresh = kernels.insert(kernel(pick)).second;
      EXPECT_TRUE(fresh || !pick.explored) << "a micro-kernel that was picked before";
      explored += pick.explored;
    }
  }
  EXPECT_EQ(explored, 8);
  EXPECT_GE(kernels.size(), 9U);
  const AskResult later = Ask(task.get(), 20, "b3", model.get());
  EXPECT_EQ(std::count_if(later.picks.begin(), later.picks.end(),
                          [](const Pick& pick) { return pick.explored; }),
            2);
  EXPECT_EQ(later.exploration_share, 0.1);
  EXPECT_GE(later.considered, SearchOptions().considered);
}

// Half of a later batch, where wanted, is one step away from the best two, whatever the model
// thinks.
TEST(SearchTaskTest, LaterBatchesDescend) {
  for (const double share : {0.5, SearchOptions().descend_share}) {
    auto task = MakeTask(1, 0.1, share);
    auto model = cost_model::MakeRandomModel(3);
    std::vector<std::pair<double, Point>> told;
    for (int b = 0; b < 3; ++b) {
      for (const Pick& pick : Ask(task.get(), 8, "b" + std::to_string(b), model.get()).picks) {
        const Candidate& c = pick.candidate;
        told.push_back({FakeTime(c.features) + static_cast<double>(told.size()) * 1e-3, c.point});
        task->Tell({c.program_hash, v1::OK, told.back().first, false}, c.steps,
                   space::PointText(c.point));
      }
    }
    std::sort(told.begin(), told.end(), [](auto& a, auto& b) { return a.first < b.first; });
    const AskResult result = Ask(task.get(), 20, "later", model.get());
    int near = 0;
    for (const Pick& pick : result.picks) {
      for (size_t best = 0; best < 2; ++best) {
        const std::vector<Point> steps = task->space().Neighbours(told[best].second);
        if (std::count(steps.begin(), steps.end(), pick.candidate.point) == 0) continue;
        ++near;
        break;
      }
    }
    EXPECT_EQ(result.picks.size(), 20U);
    if (share > 0) {
      EXPECT_GE(near, 8) << "half of all but two, one of them drafted from another point";
    } else {
      EXPECT_LE(near, 6) << "by chance only";
    }
  }
}

// Once the default was measured, its neighbours are what mutations come from.
TEST(SearchTaskTest, TheDefaultsNeighboursAreExplored) {
  const ir::Function function = tests::DenseReluProgram(24, 64, 40);
  const target::Target target = *target::ParseTarget("cpu,arch=x86_64,cpu=znver3,threads=2");
  const std::string steps = schedule::ToText(space::DefaultSchedule(function, target));
  const std::string hash = ir::ProgramHash(*schedule::Replay(function, steps));
  auto task = MakeTask(3);
  task->Tell({hash, v1::OK, 1000, false}, steps);
  auto model = cost_model::MakePriorModel();
  const AskResult asked = Ask(task.get(), 16, "b", model.get());
  int mutations = 0, around = 0;
  for (const Pick& draft : asked.ranked) {
    EXPECT_NE(draft.candidate.program_hash, hash);
    if (draft.candidate.origin != Origin::kMutation) continue;
    ++mutations;
    int changed = 0;
    for (const int choice : draft.candidate.point.choices) changed += choice != 0;
    const std::string sketch =
        task->space().sketches()[static_cast<size_t>(draft.candidate.point.sketch)]->name();
    around += sketch == "around_default" && changed <= 2;
  }
  EXPECT_GT(mutations, 12);
  EXPECT_EQ(around, mutations);
}

TEST(SearchTaskTest, LearningBeatsChance) {
  int wins = 0, losses = 0;
  for (uint64_t seed = 1; seed <= 9; ++seed) {
    const double learned = Search("xgboost", seed, 6), chance = Search("random", seed, 6);
    wins += learned < chance;
    losses += learned > chance;
  }
  EXPECT_GT(wins, losses);
}

// Hours of plain loops are refused at once, and what cannot be compared is, too.
TEST(CheckMeasurableTest, RefusesWhatCannotBeCheckedInTime) {
  const auto task = driver::MakeTask(
      "graph {\n  input %0: f32[64,64]\n  %1: f32[64,64] = relu(%0)\n  output %1\n}\n");
  ASSERT_TRUE(task.ok()) << task.status();
  EXPECT_TRUE(CheckMeasurable(*task).ok());
  driver::Task product = *task;
  product.flops = 432e9;  // 6000^3
  const absl::Status slow = CheckMeasurable(product);
  EXPECT_EQ(support::Slug(slow), "builder.checks.too_large");
  EXPECT_NE(slow.message().find("found 432 G"), std::string::npos) << slow;
  const auto large = driver::MakeTask(
      "graph {\n  input %0: f32[20000,20000]\n  %1: f32[20000,20000] = relu(%0)\n  output "
      "%1\n}\n");
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_EQ(support::Slug(CheckMeasurable(*large)), "builder.checks.too_large");
}

TEST(TrainAndJudgeTest, WantsRowsAndReportsHeldOutQuality) {
  auto task = MakeTask(1);
  auto prior = cost_model::MakePriorModel();
  cost_model::Dataset rows;
  for (const Pick& pick : Ask(task.get(), 64, "b", prior.get()).ranked) {
    rows.rows.push_back({pick.candidate.features, 0, FakeTime(pick.candidate.features)});
  }
  const auto train = [&]() -> absl::StatusOr<TrainedModel> {
    TW_ASSIGN(const TrainingInput input, PrepareTraining(rows, 1, "", prior.get(), false));
    return TrainAndJudge(input);
  };
  auto trained = train();
  ASSERT_TRUE(trained.ok()) << support::StatusText(trained.status());
  EXPECT_TRUE(trained->replaces);
  EXPECT_GT(trained->metrics.held_out_rows(), 10);
  EXPECT_GT(trained->metrics.pairwise_accuracy(), 0.8);
  rows.rows.resize(3);
  auto too_few = train();
  ASSERT_TRUE(too_few.ok());
  EXPECT_EQ(too_few->model, nullptr);
  EXPECT_FALSE(too_few->reason.empty());
}

}  // namespace
}  // namespace tilewright::search
