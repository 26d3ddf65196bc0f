// Jobs, their events and tasks. Part of SqliteLog.
#include "tuner_server/log/log_rules.h"
#include "tuner_server/log/sqlite_log_impl.h"

namespace tilewright::log {

using sql::Statement;
using sql::Transaction;
using support::Failpoint;
using support::MutexLock;

absl::StatusOr<CreatedJob> SqliteLog::CreateJob(const JobRow& job) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  if (!job.request_id.empty()) {
    TW_ASSIGN(Statement find, Select<JobRow>("WHERE request_id = ?1"));
    find.BindText(1, job.request_id);
    TW_ASSIGN(const std::vector<JobRow> same, ReadRows<JobRow>(&find));
    if (!same.empty()) return AnswerRepeatedRequest(same.front(), job);
  }
  TW_ASSIGN(Statement find, Select<JobRow>("WHERE id = ?1"));
  find.BindText(1, job.id);
  TW_ASSIGN(const std::vector<JobRow> same, ReadRows<JobRow>(&find));
  if (!same.empty()) return JobExists(job.id);
  CreatedJob created{job, false};
  TW_ASSIGN(created.job.number, db_.QueryInt64("SELECT ifnull(max(number), 0) + 1 FROM jobs"));
  TW_TRY(InsertOne(created.job));
  TW_TRY(AddEvent(job.id, {.kind = EventRow::Kind::kState,
                           .at_us = job.created_us,
                           .state = created.job.state,
                           .text = ""}));
  TW_TRY(CommitBetween(Failpoint::tuner_job_creating, &transaction, Failpoint::tuner_job_created));
  return created;
}

absl::StatusOr<JobRow> SqliteLog::GetJob(const std::string& id) {
  MutexLock lock(mutex_);
  return ReadJob(id);
}

absl::StatusOr<std::vector<JobRow>> SqliteLog::ListJobs(const JobQuery& query) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find,
            Select<JobRow>("WHERE (?1 = 0 OR number < ?1) AND (?2 = 0 OR state NOT IN "
                           "('SUCCEEDED', 'FAILED', 'CANCELLED')) ORDER BY number DESC LIMIT ?3"));
  find.BindInt64(1, query.before_number).BindInt64(2, query.open_only).BindInt64(3, query.limit);
  return ReadRows<JobRow>(&find);
}

absl::StatusOr<JobRow> SqliteLog::MoveJob(const JobTransition& transition) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  TW_ASSIGN(JobRow job, ReadJob(transition.id));
  TW_ASSIGN(job, ApplyTransition(std::move(job), transition));
  TW_TRY(WriteJob(job));
  TW_TRY(AddEvent(job.id, {.kind = EventRow::Kind::kState,
                           .at_us = transition.now_us,
                           .state = job.state,
                           .text = job.state_reason}));
  TW_TRY(CommitBetween(Failpoint::tuner_job_moving, &transaction, Failpoint::tuner_job_moved));
  return job;
}

absl::Status SqliteLog::SetElapsed(const std::string& id, double elapsed_s) {
  MutexLock lock(mutex_);
  return WriteElapsed(id, elapsed_s);
}

absl::Status SqliteLog::AddText(const std::string& job, const std::string& text, int64_t now_us) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  TW_TRY(ReadJob(job).status());
  TW_TRY(AddEvent(job, {.kind = EventRow::Kind::kText, .at_us = now_us, .text = text}));
  return transaction.Commit();
}

absl::StatusOr<std::vector<EventRow>> SqliteLog::ListEvents(const std::string& job,
                                                            int64_t after_seq, int64_t limit) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find,
            db_.Prepare("SELECT seq, kind, at_us, state, trial, text FROM job_events "
                        "WHERE job = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3"));
  find.BindText(1, job).BindInt64(2, after_seq).BindInt64(3, limit);
  std::vector<EventRow> events;
  for (;;) {
    TW_ASSIGN(const bool more, find.Step());
    if (!more) return events;
    EventRow event;
    event.seq = find.ColumnInt64(0);
    event.kind = static_cast<EventRow::Kind>(find.ColumnInt64(1));
    event.at_us = find.ColumnInt64(2);
    event.state = ParseJobState(find.ColumnText(3)).value_or(JobState::kQueued);
    event.trial = find.ColumnInt64(4);
    event.text = find.ColumnText(5);
    events.push_back(std::move(event));
  }
}

absl::Status SqliteLog::PutTasks(const std::string& job, const std::string& toolchain,
                                 const std::string& model_name, const std::vector<TaskRow>& tasks) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  TW_ASSIGN(JobRow row, ReadJob(job));
  TW_ASSIGN(const std::vector<TaskRow> stored, ReadTasks(job));
  if (stored.empty()) {
    TW_ASSIGN(auto insert, RowInserter<TaskRow>::Prepare(&db_));
    for (const TaskRow& task : tasks) TW_TRY(insert.Run(task));
  } else {
    TW_TRY(CheckSameTasks(stored, tasks));
  }
  row.toolchain = toolchain;
  if (row.model_name.empty()) row.model_name = model_name;
  TW_TRY(WriteJob(row));
  return CommitBetween(Failpoint::tuner_tasks_putting, &transaction, Failpoint::tuner_tasks_put);
}

absl::StatusOr<std::vector<TaskRow>> SqliteLog::ListTasks(const std::string& job) {
  MutexLock lock(mutex_);
  return ReadTasks(job);
}

absl::StatusOr<std::vector<TaskRow>> SqliteLog::DistinctTasks(int64_t before_us) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement select,
            db_.Prepare("SELECT tasks.hash, tasks.text FROM tasks JOIN jobs ON jobs.id = tasks.job "
                        "WHERE jobs.created_us < ?1 GROUP BY tasks.hash ORDER BY tasks.hash"));
  select.BindInt64(1, before_us);
  std::vector<TaskRow> tasks;
  for (;;) {
    TW_ASSIGN(const bool more, select.Step());
    if (!more) return tasks;
    TaskRow& task = tasks.emplace_back();
    task.hash = select.ColumnText(0);
    task.text = select.ColumnText(1);
  }
}

absl::StatusOr<JobRow> SqliteLog::ReadJob(const std::string& id) {
  TW_ASSIGN(Statement find, Select<JobRow>("WHERE id = ?1"));
  find.BindText(1, id);
  return ReadOne<JobRow>(&find, "job", id);
}

absl::Status SqliteLog::WriteJob(const JobRow& job) {
  TW_ASSIGN(Statement set, db_.Prepare(SealedUpdate<JobRow>({{"state", "?2"},
                                                             {"state_reason", "?3"},
                                                             {"updated_us", "?4"},
                                                             {"started_us", "?5"},
                                                             {"ended_us", "?6"},
                                                             {"elapsed_s", "?7"},
                                                             {"toolchain", "?8"},
                                                             {"model_name", "?9"}},
                                                            "id = ?1")));
  return set.BindText(1, job.id)
      .BindText(2, JobStateName(job.state))
      .BindText(3, job.state_reason)
      .BindInt64(4, job.updated_us)
      .BindInt64(5, job.started_us)
      .BindInt64(6, job.ended_us)
      .BindDouble(7, job.elapsed_s)
      .BindText(8, job.toolchain)
      .BindText(9, job.model_name)
      .Run();
}

absl::Status SqliteLog::WriteElapsed(const std::string& job, double elapsed_s) {
  static const std::string* const update =
      new std::string(SealedUpdate<JobRow>({{"elapsed_s", "?2"}}, "id = ?1"));
  TW_ASSIGN(Statement set, db_.Prepare(*update));
  return set.BindText(1, job).BindDouble(2, elapsed_s).Run();
}

absl::Status SqliteLog::AddEvent(const std::string& job, const EventRow& event) {
  TW_ASSIGN(Statement insert,
            db_.Prepare("INSERT INTO job_events (job, seq, kind, at_us, state, trial, text) "
                        "VALUES (?1, (SELECT ifnull(max(seq), 0) + 1 FROM job_events "
                        "WHERE job = ?1), ?2, ?3, ?4, ?5, ?6)"));
  return insert.BindText(1, job)
      .BindInt64(2, static_cast<int64_t>(event.kind))
      .BindInt64(3, event.at_us)
      .BindText(4, JobStateName(event.state))
      .BindInt64(5, event.trial)
      .BindText(6, event.text)
      .Run();
}

absl::StatusOr<std::vector<TaskRow>> SqliteLog::ReadTasks(const std::string& job) {
  TW_ASSIGN(Statement find, Select<TaskRow>("WHERE job = ?1 ORDER BY task_index"));
  find.BindText(1, job);
  return ReadRows<TaskRow>(&find);
}

}  // namespace tilewright::log
