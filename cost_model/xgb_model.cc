// Gradient-boosted trees by XGBoost's C interface. They learn what the analytical estimate gets
// wrong: a score is the last column, prior.score, plus what stock XGBoost predicts from the float
// features and the stored model (its base margin, in XGBoost's words). Without data that is the
// prior.
//
// One thread always: libgomp's waiting threads would take the cores that measure, and a fork after
// a parallel region hangs (FACTS.md). 64 bins: three times faster to train, no loss seen.
#include <xgboost/c_api.h>

#include <cmath>
#include <cstring>
#include <mutex>

#include "cost_model/model.h"
#include "cost_model/pair_objective.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::cost_model {
namespace {

constexpr size_t kMinRows = 8;
// Few rows need few and shallow trees: the time to train grows with both, what is learned does not.
constexpr size_t kFewRows = 128;
constexpr int kRoundsOnBase = 40;
constexpr size_t kManyRows = 4096;
constexpr char kSchemaAttribute[] = "tilewright_features";

absl::Status XgbError(std::string_view what) {
  return support::Internal("cost_model.xgboost", support::StrCat(what, ": ", XGBGetLastError()));
}
#define TW_XGB(call) \
  if ((call) != 0) return XgbError(#call)

struct MatrixDeleter {
  void operator()(void* handle) const { XGDMatrixFree(handle); }
};
struct BoosterDeleter {
  void operator()(void* handle) const { XGBoosterFree(handle); }
};
using Matrix = std::unique_ptr<void, MatrixDeleter>;
using Booster = std::unique_ptr<void, BoosterDeleter>;

struct Param {
  const char* name;
  const char* value;
};
constexpr Param kParams[] = {
    {"verbosity", "0"},          {"nthread", "1"},    {"tree_method", "hist"},
    {"max_bin", "64"},           {"max_depth", "6"},  {"eta", "0.1"},
    {"min_child_weight", "1"},   {"lambda", "1"},     {"subsample", "0.9"},
    {"colsample_bynode", "0.7"}, {"base_score", "0"}, {"objective", "reg:squarederror"},
};

std::string ArrayInterface(const float* data, size_t rows, size_t columns) {
  return support::StrCat("{\"data\":[", reinterpret_cast<uintptr_t>(data), ",true],\"shape\":[",
                         rows, ",", columns, "],\"typestr\":\"<f4\",\"version\":3}");
}

absl::StatusOr<std::vector<float>> Flatten(const std::vector<const FeatureVector*>& rows,
                                           size_t columns) {
  std::vector<float> flat;
  flat.reserve(rows.size() * columns);
  for (const FeatureVector* row : rows) {
    if (row->size() != columns) {
      return support::InvalidArgument(
          "cost_model.columns",
          support::StrCat("expected ", columns, " columns, found ", row->size()));
    }
    flat.insert(flat.end(), row->begin(), row->end());
  }
  return flat;
}

// A booster of these bytes, of the features of that schema.
absl::StatusOr<Booster> LoadBooster(std::string_view bytes, const std::string& expected) {
  BoosterHandle raw = nullptr;
  TW_XGB(XGBoosterCreate(nullptr, 0, &raw));
  Booster booster(raw);
  TW_XGB(XGBoosterSetParam(raw, "nthread", "1"));
  TW_XGB(XGBoosterSetParam(raw, "verbosity", "0"));
  if (XGBoosterLoadModelFromBuffer(raw, bytes.data(), bytes.size()) != 0) {
    return support::DataLoss("cost_model.load.corrupt", XGBGetLastError());
  }
  const char* schema = nullptr;
  int found = 0;
  TW_XGB(XGBoosterGetAttr(raw, kSchemaAttribute, &schema, &found));
  if (found == 0 || schema != expected) {
    return support::FailedPrecondition(
        "cost_model.load.schema",
        support::StrCat("expected features ", expected, ", found ", found != 0 ? schema : "none"));
  }
  return booster;
}

// The same, read once for many: a training reads its base three times, and to read one of some
// hundred trees takes longer than ten rounds. `base`: these bytes will be asked for again. Any
// thread may ask.
absl::StatusOr<Booster> CopyOfBooster(std::string_view bytes, const std::string& schema,
                                      bool base) {
  static std::mutex mutex;
  static std::string* const known = new std::string();
  static Booster* const read = new Booster();
  const std::lock_guard lock(mutex);
  if (*read == nullptr || *known != bytes) {
    if (!base) return LoadBooster(bytes, schema);
    TW_ASSIGN(*read, LoadBooster(bytes, schema));
    *known = bytes;
  }
  BoosterHandle copy = nullptr;
  TW_XGB(XGBoosterSlice(read->get(), 0, 0, 1, &copy));
  return Booster(copy);
}

absl::StatusOr<std::vector<float>> PredictFlat(BoosterHandle booster,
                                               const std::vector<float>& flat, size_t rows) {
  const bst_ulong* shape = nullptr;
  bst_ulong dims = 0;
  const float* result = nullptr;
  TW_XGB(XGBoosterPredictFromDense(
      booster, ArrayInterface(flat.data(), rows, flat.size() / rows).c_str(),
      "{\"type\":0,\"training\":false,\"iteration_begin\":0,\"iteration_end\":0,"
      "\"strict_shape\":false,\"missing\":NaN,\"cache_id\":0}",
      nullptr, &shape, &dims, &result));
  if (dims < 1 || shape[0] != rows) return XgbError("predicted another number of rows");
  return std::vector<float>(result, result + rows);
}

// What the trees so far say of the rows that they are fitted to, which the booster keeps.
absl::StatusOr<std::vector<float>> PredictTraining(BoosterHandle booster, DMatrixHandle matrix) {
  const bst_ulong* shape = nullptr;
  bst_ulong dims = 0, rows = 0;
  const float* result = nullptr;
  TW_XGB(XGDMatrixNumRow(matrix, &rows));
  TW_XGB(XGBoosterPredictFromDMatrix(
      booster, matrix,
      "{\"type\":1,\"training\":true,\"iteration_begin\":0,\"iteration_end\":0,"
      "\"strict_shape\":false}",
      &shape, &dims, &result));
  if (dims < 1 || shape[0] != rows) return XgbError("predicted another number of rows");
  return std::vector<float>(result, result + rows);
}

// Turns labels into what trees have to add to the prior. How fast the best of a task is, no model
// knows or needs: labels move, group by group, so that on average `known` (what the base's trees
// say) is right.
void MakeResiduals(const Dataset& data, const std::vector<float>& known,
                   std::vector<float>* labels) {
  for (size_t i = 0; i < data.rows.size(); ++i) (*labels)[i] -= data.rows[i].features.back();
  const auto groups = static_cast<size_t>(data.num_groups());
  std::vector<double> sum(groups, 0), count(groups, 0);
  for (size_t i = 0; i < data.rows.size(); ++i) {
    if (!(data.rows[i].time_ns > 0)) continue;
    const auto group = static_cast<size_t>(data.rows[i].group);
    sum[group] += static_cast<double>(known[i]) - static_cast<double>((*labels)[i]);
    count[group] += 1;
  }
  for (size_t i = 0; i < data.rows.size(); ++i) {
    const auto group = static_cast<size_t>(data.rows[i].group);
    if (count[group] > 0) (*labels)[i] += static_cast<float>(sum[group] / count[group]);
  }
}

class XgbModel final : public CostModel {
 public:
  XgbModel(uint64_t seed, std::string base, FeatureSet features)
      : seed_(seed),
        base_(std::move(base)),
        schema_(SchemaHash(features)),
        columns_(FeatureNames(features).size()) {}

  absl::Status Fit(const Dataset& data) override {
    if (data.rows.size() < kMinRows) {
      return support::FailedPrecondition(
          "cost_model.fit.too_few",
          support::StrCat("expected at least ", kMinRows, " rows, found ", data.rows.size()));
    }
    std::vector<const FeatureVector*> rows;
    for (const DataRow& row : data.rows) rows.push_back(&row.features);
    TW_ASSIGN(std::vector<float> flat, Flatten(rows, columns_));
    std::vector<float> labels = Labels(data);
    // The fast end of each task is what the search lives on: it weighs more.
    std::vector<float> weights;
    for (const float label : labels) weights.push_back(0.2F + std::exp2(label));
    DMatrixHandle raw = nullptr;
    TW_XGB(XGDMatrixCreateFromDense(
        ArrayInterface(flat.data(), rows.size(), flat.size() / rows.size()).c_str(),
        "{\"missing\":NaN,\"nthread\":1}", &raw));
    Matrix matrix(raw);
    TW_ASSIGN(Booster booster, Start(data, flat, raw, &labels));
    BoosterHandle raw_booster = booster.get();
    TW_XGB(XGDMatrixSetFloatInfo(raw, "label", labels.data(), labels.size()));
    TW_XGB(XGDMatrixSetFloatInfo(raw, "weight", weights.data(), weights.size()));
    for (const Param& param : kParams)
      TW_XGB(XGBoosterSetParam(raw_booster, param.name, param.value));
    TW_XGB(XGBoosterSetParam(raw_booster, "seed", support::StrCat(seed_ & 0x7fffffff).c_str()));
    if (rows.size() < kFewRows || !base_.empty()) {
      TW_XGB(XGBoosterSetParam(raw_booster, "max_depth", "4"));
    }
    // Many tasks: what only a few rows of one of them say is believed less.
    if (rows.size() >= kManyRows) TW_XGB(XGBoosterSetParam(raw_booster, "lambda", "10"));
    int before = 0;
    TW_XGB(XGBoosterBoostedRounds(raw_booster, &before));
    const int rounds = TrainingRounds(rows.size(), !base_.empty());
    if (rows.size() >= kManyRows && base_.empty()) {
      TW_TRY(FitOrder(data, raw_booster, raw, rounds, std::move(labels), std::move(weights)));
    } else {
      for (int round = 0; round < rounds; ++round) {
        TW_XGB(XGBoosterUpdateOneIter(raw_booster, before + round, raw));
      }
    }
    TW_XGB(XGBoosterSetAttr(raw_booster, kSchemaAttribute, schema_.c_str()));
    booster_ = std::move(booster);
    loaded_ = false;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<float>> Predict(const std::vector<FeatureVector>& rows) override {
    if (!booster_)
      return support::FailedPrecondition("cost_model.predict.untrained", "no model yet");
    if (rows.empty()) return std::vector<float>();
    std::vector<const FeatureVector*> pointers;
    for (const FeatureVector& row : rows) pointers.push_back(&row);
    TW_ASSIGN(std::vector<float> flat, Flatten(pointers, columns_));
    TW_ASSIGN(std::vector<float> scores, PredictFlat(booster_.get(), flat, rows.size()));
    for (size_t i = 0; i < rows.size(); ++i) scores[i] += rows[i].back();
    return scores;
  }

  bool pretrained() const override { return booster_ && (loaded_ || !base_.empty()); }

  absl::StatusOr<std::string> Save() const override {
    if (!booster_) return support::FailedPrecondition("cost_model.save.untrained", "no model yet");
    bst_ulong size = 0;
    const char* data = nullptr;
    TW_XGB(XGBoosterSaveModelToBuffer(booster_.get(), "{\"format\":\"ubj\"}", &size, &data));
    return std::string(data, size);
  }

  absl::Status Load(std::string_view bytes) override {
    TW_ASSIGN(booster_, CopyOfBooster(bytes, schema_, /*base=*/false));
    loaded_ = true;
    return absl::OkStatus();
  }

 private:
  // What Fit trains further: the base, with labels that fit to it, or nothing.
  absl::StatusOr<Booster> Start(const Dataset& data, const std::vector<float>& flat,
                                DMatrixHandle matrix, std::vector<float>* labels) const {
    if (!base_.empty()) {
      TW_ASSIGN(Booster booster, CopyOfBooster(base_, schema_, /*base=*/true));
      TW_ASSIGN(const std::vector<float> known, PredictFlat(booster.get(), flat, data.rows.size()));
      MakeResiduals(data, known, labels);
      return booster;
    }
    MakeResiduals(data, std::vector<float>(data.rows.size(), 0), labels);
    BoosterHandle raw = nullptr;
    TW_XGB(XGBoosterCreate(&matrix, 1, &raw));
    return Booster(raw);
  }

  // Many tasks' rows: what is asked of a model of them is the order within each (pair_objective.h).
  absl::Status FitOrder(const Dataset& data, BoosterHandle booster, DMatrixHandle matrix,
                        int rounds, std::vector<float> targets, std::vector<float> weights) const {
    std::vector<float> estimates, gradient, hessian;
    for (const DataRow& row : data.rows) estimates.push_back(row.features.back());
    PairObjective objective(data, Labels(data), std::move(estimates), std::move(targets),
                            std::move(weights), seed_);
    for (int round = 0; round < rounds; ++round) {
      TW_ASSIGN(const std::vector<float> trees, PredictTraining(booster, matrix));
      objective.Differentiate(trees, &gradient, &hessian);
      TW_XGB(
          XGBoosterBoostOneIter(booster, matrix, gradient.data(), hessian.data(), gradient.size()));
    }
    return absl::OkStatus();
  }

  uint64_t seed_;
  std::string base_;
  std::string schema_;
  size_t columns_;
  Booster booster_;
  bool loaded_ = false;  // rather than fitted
};

}  // namespace

int TrainingRounds(size_t rows, bool has_base) {
  if (has_base) return kRoundsOnBase;
  return rows < kFewRows ? 60 : rows < kManyRows ? 120 : 200;
}

std::unique_ptr<CostModel> MakeXgbModel(uint64_t seed, std::string base, FeatureSet features) {
  return std::make_unique<XgbModel>(seed, std::move(base), features);
}

}  // namespace tilewright::cost_model
