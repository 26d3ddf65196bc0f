// Messages of a daemon to its service manager (protocol of sd_notify): it serves, it ends, it is
// alive. All do nothing if systemd did not start the process. Thread-safe.
#pragma once

#include <string>

namespace tilewright::daemon {

// "READY=1", "STOPPING=1"; nothing when NOTIFY_SOCKET is not set.
void NotifySystemd(const std::string& message);

// Tells systemd that the daemon is alive. The daemon's main loop calls it in each round, at least
// every few seconds. If the loop hangs for WatchdogSec, systemd kills and restarts the daemon.
// Cheap: sends at most four messages per WatchdogSec.
void BeatWatchdog();

}  // namespace tilewright::daemon
