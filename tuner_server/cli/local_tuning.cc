#include "tuner_server/cli/local_tuning.h"

#include <mutex>
#include <utility>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/device_patience.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

constexpr int64_t kFirstLookMs = 100;  // for devices, until one has registered
constexpr int64_t kLookMs = 2'000;     // then

// Whether the daemons of this machine run, and a device of theirs registers in time and stays
// healthy.
class DeviceWatch {
 public:
  DeviceWatch(ServerClient* client, const EmbeddedFleet* fleet)
      : client_(client), fleet_(fleet), patience_(clock_.NowNs()) {}

  absl::Status Check() {
    TW_TRY(fleet_->Healthy());
    const std::lock_guard lock(mutex_);
    if (!given_up_.ok() || clock_.NowNs() < next_look_ns_) return given_up_;
    const auto page = client_->Call(client_->fleet(), &v1::FleetAdminService::Stub::ListDevices,
                                    v1::ListDevicesRequest());
    const int64_t now_ns = clock_.NowNs();
    next_look_ns_ = now_ns + (patience_.registered() ? kLookMs : kFirstLookMs) * 1'000'000;
    // A service that is being started again answers later.
    if (!page.ok() && patience_.registered()) return absl::OkStatus();
    std::vector<v1::Device> devices;
    if (page.ok()) devices.assign(page->devices().begin(), page->devices().end());
    const absl::Status status = patience_.Look(devices, now_ns);
    if (const std::string notice = patience_.TakeNotice(); !notice.empty()) PrintErr(notice + "\n");
    if (!status.ok())
      given_up_ = support::WithContext(status, "state folder " + fleet_->state_dir());
    return given_up_;
  }

 private:
  ServerClient* client_;
  const EmbeddedFleet* fleet_;
  support::SystemClock clock_;
  std::mutex mutex_;
  DevicePatience patience_;
  int64_t next_look_ns_ = 0;
  absl::Status given_up_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalTuning>> LocalTuning::Start(const EmbeddedOptions& options) {
  if (options.bridge.empty()) TW_TRY(CheckRunsHere(options.target));
  TW_ASSIGN(auto fleet, EmbeddedFleet::Start(options));
  std::string log = options.log_path.empty() ? EmbeddedLog(fleet->state_dir()) : options.log_path;
  std::unique_ptr<LocalTuning> here(new LocalTuning(std::move(fleet), std::move(log)));
  TW_TRY(here->CancelLeftOvers());
  return here;
}

LocalTuning::LocalTuning(std::unique_ptr<EmbeddedFleet> fleet, std::string log_path)
    : fleet_(std::move(fleet)), log_path_(std::move(log_path)), client_(fleet_->address()) {}

absl::StatusOr<v1::Job> LocalTuning::Run(const JobRequest& request) {
  TW_ASSIGN(const v1::Job job,
            Patiently(kSubmitPatienceMs, [&] { return SubmitJob(client_, request); }));
  DeviceWatch device(&client_, fleet_.get());
  auto watched = WatchJob(client_, job.name(), false, [&device] { return device.Check(); });
  // The command's own error is the one to report.
  if (!watched.ok()) (void)Cancel(job.name(), "the command line ended");
  return watched;
}

// Jobs that an earlier run left behind when it was killed: their commands are gone.
absl::Status LocalTuning::CancelLeftOvers() {
  v1::ListJobsRequest request;
  request.set_parent("projects/default");
  do {
    TW_ASSIGN(v1::ListJobsResponse page,
              client_.Call(client_.jobs(), &v1::JobService::Stub::ListJobs, request));
    for (const v1::Job& job : page.jobs()) {
      const bool ended = job.state() == v1::Job::SUCCEEDED || job.state() == v1::Job::FAILED ||
                         job.state() == v1::Job::CANCELLED;
      if (!ended) TW_TRY(Cancel(job.name(), "left behind by an earlier tune"));
    }
    request.mutable_page()->set_page_token(page.next_page_token());
  } while (!request.page().page_token().empty());
  return absl::OkStatus();
}

absl::Status LocalTuning::Cancel(const std::string& name, const std::string& reason) {
  v1::CancelJobRequest request;
  request.set_name(name);
  request.set_reason(reason);
  return client_.Call(client_.jobs(), &v1::JobService::Stub::CancelJob, request).status();
}

}  // namespace tilewright::cli
