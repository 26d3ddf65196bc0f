// The log's enums and the protocol's: every value of either has its own of the other, by name.
#include "tuner_server/jobs/row_enums.h"

#include <gtest/gtest.h>

#include <set>

namespace tilewright::jobs {
namespace {

template <typename Row, typename Proto>
struct Mapped {
  std::set<Row> rows;
  std::set<Proto> protos;
};

// All rows that the names of a protocol enum stand for, each checked to map back to its number.
template <typename Row, typename Proto>
Mapped<Row, Proto> MapAll(const google::protobuf::EnumDescriptor* descriptor,
                          std::optional<Row> (*parse)(std::string_view)) {
  Mapped<Row, Proto> mapped;
  for (int i = 0; i < descriptor->value_count(); ++i) {
    const auto proto = static_cast<Proto>(descriptor->value(i)->number());
    const std::optional<Row> row = parse(descriptor->value(i)->name());
    if (!row) continue;
    EXPECT_EQ(ToProto(*row), proto) << descriptor->value(i)->name();
    mapped.rows.insert(*row);
    mapped.protos.insert(proto);
  }
  return mapped;
}

TEST(RowEnums, OutcomesAreTheSameBothWays) {
  const auto* names = v1::Outcome_descriptor();
  const auto all = MapAll<log::Outcome, v1::Outcome>(names, log::ParseOutcome);
  EXPECT_EQ(all.protos.size(), static_cast<size_t>(names->value_count())) << "one has no row";
  for (const log::Outcome outcome : all.rows) EXPECT_EQ(FromProto(ToProto(outcome)), outcome);
  EXPECT_EQ(FromProto(static_cast<v1::Outcome>(77)), log::Outcome::kUnspecified);
}

TEST(RowEnums, StatesHaveTheirNameInTheProtocol) {
  const auto* jobs = v1::Job::State_descriptor();
  const auto job_states = MapAll<log::JobState, v1::Job::State>(jobs, log::ParseJobState);
  EXPECT_EQ(job_states.protos.size() + 1, static_cast<size_t>(jobs->value_count()))
      << "one other than STATE_UNSPECIFIED has no row";
  // A trial is BUILDING or MEASURING at another process: its row does not say so.
  const auto* trials = v1::Trial::State_descriptor();
  const auto trial_states = MapAll<log::TrialState, v1::Trial::State>(trials, log::ParseTrialState);
  EXPECT_EQ(trial_states.protos.size() + 3, static_cast<size_t>(trials->value_count()));
}

}  // namespace
}  // namespace tilewright::jobs
