#include "tuner_server/cli/device_commands.h"

#include <nlohmann/json.hpp>

#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/server_client.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

constexpr int kPageSize = 1000;  // the tracker's limit

// "REACHABILITY_ONLINE" -> "online"
std::string EnumText(const std::string& name) {
  const size_t underscore = name.find('_');
  std::string word = underscore == std::string::npos ? name : name.substr(underscore + 1);
  if (word.starts_with("STATE_")) word = word.substr(6);
  return support::ToLower(word);
}

std::string ReachabilityText(const v1::Device& d) {
  return EnumText(v1::Reachability_Name(d.reachability()));
}
std::string HealthText(const v1::Device& d) { return EnumText(v1::Health_Name(d.health())); }
std::string ActivityText(const v1::Device& d) { return EnumText(v1::Activity_Name(d.activity())); }
std::string AdminText(const v1::Device& d) {
  return EnumText(v1::AdminState_Name(d.admin_state()));
}

std::string ResetText(const v1::ResetReport& reset) {
  if (reset.request().empty()) return "";
  return EnumText(v1::ResetState_Name(reset.state())) +
         (reset.detail().empty() ? "" : ": " + reset.detail());
}

std::string WhyNoWork(const v1::Device& device) {
  std::vector<std::string> reasons;
  for (const v1::Condition& condition : device.conditions()) {
    reasons.push_back(condition.message().empty() ? condition.reason() : condition.message());
  }
  return reasons.empty() ? "-" : support::Join(reasons, "; ");
}

// The profile that confines candidates on it, as its agent says.
std::string SandboxText(const v1::Device& device) {
  const auto profile = device.attributes().find("sandbox");
  const auto in_force = device.attributes().find("sandboxed");
  if (in_force != device.attributes().end() && !in_force->second.b()) return "none";
  if (profile == device.attributes().end()) return "-";
  return profile->second.s() + (device.attributes().contains("sandbox_missing") ? " (weak)" : "");
}

nlohmann::json AttributeJson(const v1::Attribute& attribute) {
  switch (attribute.value_case()) {
    case v1::Attribute::kS:
      return attribute.s();
    case v1::Attribute::kI:
      return attribute.i();
    case v1::Attribute::kD:
      return attribute.d();
    case v1::Attribute::kB:
      return attribute.b();
    default:
      return nullptr;
  }
}

nlohmann::json DeviceJson(const v1::Device& device) {
  nlohmann::json attributes = nlohmann::json::object();
  for (const auto& [key, value] : device.attributes()) attributes[key] = AttributeJson(value);
  nlohmann::json conditions = nlohmann::json::array();
  for (const v1::Condition& c : device.conditions()) {
    conditions.push_back({{"type", c.type()}, {"reason", c.reason()}, {"message", c.message()}});
  }
  return {{"name", device.name()},
          {"pool", device.pool()},
          {"agent", device.agent()},
          {"address", device.address()},
          {"fingerprint", device.fingerprint()},
          {"reachability", ReachabilityText(device)},
          {"health", HealthText(device)},
          {"activity", ActivityText(device)},
          {"admin_state", AdminText(device)},
          {"admin_reason", device.admin_reason()},
          {"quarantine", device.quarantine().reason()},
          {"last_reset", ResetText(device.last_reset())},
          {"sandbox", SandboxText(device)},
          {"work_items_done", device.work_items_done()},
          {"last_seen", TimestampText(device.last_seen())},
          {"conditions", conditions},
          {"attributes", attributes}};
}

std::string DeviceName(const std::string& text) {
  return text.starts_with("devices/") ? text : "devices/" + text;
}

void PrintDevice(const v1::Device& device) {
  std::string text =
      StrCat("device       ", LastPart(device.name()), "\npool         ", device.pool(),
             "\nagent        ", device.agent(), " at ", device.address(), "\nfingerprint  ",
             device.fingerprint(), "\nreachability ", ReachabilityText(device), ", last seen ",
             TimestampText(device.last_seen()), "\nhealth       ", HealthText(device),
             "\nactivity     ", ActivityText(device), "\nadmin state  ", AdminText(device));
  if (!device.admin_reason().empty()) text += " (" + device.admin_reason() + ")";
  if (device.has_quarantine()) {
    text += StrCat("\nnot trusted  since ", TimestampText(device.quarantine().since()), ", ",
                   device.quarantine().probes(), " canaries failed since, next in ",
                   device.quarantine().next_probe().seconds(), " s");
  }
  if (device.has_last_reset()) text += "\nlast reset   " + ResetText(device.last_reset());
  if (!device.current_lease().empty()) text += "\nlease        " + device.current_lease();
  text +=
      StrCat("\nmeasured     ", device.work_items_done(), " work items since the tracker started",
             "\nno work now  ", WhyNoWork(device), "\n");
  nlohmann::json json = DeviceJson(device);
  for (const auto& [key, value] : json["attributes"].items()) {
    text +=
        StrCat("  ", key, " = ", value.is_string() ? value.get<std::string>() : value.dump(), "\n");
  }
  PrintOut(text);
}

}  // namespace

int DevicesList(const ServerPlace& server, OutputFormat format) {
  const auto list = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    Table table({{"device"},
                 {"pool"},
                 {"reachable"},
                 {"health"},
                 {"activity"},
                 {"admin"},
                 {"sandbox"},
                 {"measured", true},
                 {"why no work now"}});
    nlohmann::json rows = nlohmann::json::array();
    v1::ListDevicesRequest request;
    request.mutable_page()->set_page_size(kPageSize);
    do {
      TW_ASSIGN(v1::ListDevicesResponse page,
                client.Call(client.fleet(), &v1::FleetAdminService::Stub::ListDevices, request));
      for (const v1::Device& device : page.devices()) {
        rows.push_back(DeviceJson(device));
        table.AddRow({LastPart(device.name()), device.pool(), ReachabilityText(device),
                      HealthText(device), ActivityText(device), AdminText(device),
                      SandboxText(device), StrCat(device.work_items_done()), WhyNoWork(device)});
      }
      request.mutable_page()->set_page_token(page.next_page_token());
    } while (!request.page().page_token().empty());
    if (format == OutputFormat::kJson) {
      PrintJson(rows);
    } else if (table.rows() == 0) {
      PrintOut("no device has registered: start tilewright-agent with --tracker HOST:PORT");
    } else {
      PrintOut(table.Render());
    }
    return absl::OkStatus();
  };
  return Finish("devices list", "cannot list devices", list());
}

int DevicesGet(const ServerPlace& server, const std::string& device, OutputFormat format) {
  const auto get = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    v1::GetDeviceRequest request;
    request.set_name(DeviceName(device));
    TW_ASSIGN(v1::Device found,
              client.Call(client.fleet(), &v1::FleetAdminService::Stub::GetDevice, request));
    if (format == OutputFormat::kJson) {
      PrintJson(DeviceJson(found));
    } else {
      PrintDevice(found);
    }
    return absl::OkStatus();
  };
  return Finish("devices get", "cannot show device " + device, get());
}

int DevicesDrain(const ServerPlace& server, const std::string& device, bool drain,
                 const std::string& reason, bool now) {
  const auto set = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    v1::SetDeviceAdminStateRequest request;
    request.set_name(DeviceName(device));
    request.set_admin_state(drain ? v1::ADMIN_STATE_DRAINING : v1::ADMIN_STATE_ENABLED);
    request.set_reason(reason);
    request.set_kill_running(now);
    TW_ASSIGN(
        v1::Device found,
        client.Call(client.fleet(), &v1::FleetAdminService::Stub::SetDeviceAdminState, request));
    PrintOut(LastPart(found.name()) + " is " + AdminText(found));
    return absl::OkStatus();
  };
  return Finish(drain ? "devices drain" : "devices undrain", "cannot change device " + device,
                set());
}

int DevicesHold(const ServerPlace& server, const std::string& device, const std::string& holder,
                const std::string& purpose, double minutes) {
  const auto hold = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    v1::CreateHoldRequest request;
    request.mutable_hold()->set_device(DeviceName(device));
    request.mutable_hold()->set_holder(holder);
    request.mutable_hold()->set_purpose(purpose);
    request.mutable_ttl()->set_seconds(static_cast<int64_t>(minutes * 60));
    TW_ASSIGN(v1::Hold made,
              client.Call(client.fleet(), &v1::FleetAdminService::Stub::CreateHold, request));
    PrintOut(StrCat(LastPart(made.device()), " is held by ", made.holder(), " until ",
                    TimestampText(made.expire_time()), " UTC as ", made.name()));
    return absl::OkStatus();
  };
  return Finish("devices hold", "cannot hold device " + device, hold());
}

int DevicesReset(const ServerPlace& server, const std::string& device, const std::string& reason) {
  const auto reset = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    v1::ResetDeviceRequest request;
    request.set_name(DeviceName(device));
    request.set_reason(reason);
    TW_TRY(
        client.Call(client.fleet(), &v1::FleetAdminService::Stub::ResetDevice, request).status());
    PrintOut("a reset of " + LastPart(request.name()) +
             " is ordered; 'tilewright devices get' shows how it ends");
    return absl::OkStatus();
  };
  return Finish("devices reset", "cannot reset " + device, reset());
}

int DevicesForget(const ServerPlace& server, const std::vector<std::string>& devices) {
  std::string at = devices.front();
  const auto forget = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    for (const std::string& device : devices) {
      at = device;
      v1::ForgetDeviceRequest request;
      request.set_name(DeviceName(device));
      TW_TRY(client.Call(client.fleet(), &v1::FleetAdminService::Stub::ForgetDevice, request)
                 .status());
      PrintOut(LastPart(request.name()) + " is forgotten");
    }
    return absl::OkStatus();
  };
  const absl::Status status = forget();
  return Finish("devices forget", "cannot forget " + at, status);
}

int DevicesShares(const ServerPlace& server, OutputFormat format) {
  const auto list = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    TW_ASSIGN(const v1::ListSharesResponse response,
              client.Call(client.fleet(), &v1::FleetAdminService::Stub::ListShares, {}));
    Table table({{"user"},
                 {"weight", true},
                 {"queued", true},
                 {"running", true},
                 {"devices", true},
                 {"device time today", true},
                 {"held back by"}});
    nlohmann::json rows = nlohmann::json::array();
    for (const v1::UserShare& share : response.shares()) {
      rows.push_back({{"user", share.user()},
                      {"weight", share.weight()},
                      {"queued", share.queued()},
                      {"leased", share.leased()},
                      {"devices", share.devices()},
                      {"max_devices", share.max_devices()},
                      {"max_open_items", share.max_open_items()},
                      {"device_seconds_today", share.device_seconds_today()},
                      {"device_seconds_per_day", share.device_seconds_per_day()},
                      {"blocked", share.blocked()}});
      table.AddRow({share.user().empty() ? "-" : share.user(), StrCat(share.weight()),
                    StrCat(share.queued()), StrCat(share.leased()), StrCat(share.devices()),
                    TimeText(share.device_seconds_today() * 1e9),
                    share.blocked().empty() ? "-" : share.blocked()});
    }
    if (format == OutputFormat::kJson) {
      PrintJson(rows);
    } else {
      PrintOut(table.rows() == 0 ? "no user has work" : table.Render());
    }
    return absl::OkStatus();
  };
  return Finish("devices shares", "cannot list shares", list());
}

int DevicesRelease(const ServerPlace& server, const std::string& name) {
  const auto release = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    v1::ReleaseHoldRequest request;
    // A hold, or the device that it holds.
    request.set_name(name.starts_with("holds/") ? name : DeviceName(name));
    TW_TRY(
        client.Call(client.fleet(), &v1::FleetAdminService::Stub::ReleaseHold, request).status());
    PrintOut(request.name() + " is released");
    return absl::OkStatus();
  };
  return Finish("devices hold", "cannot release " + name, release());
}

}  // namespace tilewright::cli
