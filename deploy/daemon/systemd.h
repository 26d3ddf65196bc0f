// What a daemon tells its service manager (sd_notify's protocol): that it serves, that it ends, and
// that it is alive. All do nothing when systemd did not start the process. Thread-safe.
#pragma once

#include <string>

namespace tilewright::daemon {

// "READY=1", "STOPPING=1"; nothing when NOTIFY_SOCKET is not set.
void NotifySystemd(const std::string& message);

// Called by the one thread that a daemon cannot work without, each time around its loop, at least
// every few seconds: as long as it goes round, the unit's WatchdogSec is fed; when it hangs,
// systemd kills and restarts the daemon. Cheap: a message goes out only four times per WatchdogSec.
void BeatWatchdog();

}  // namespace tilewright::daemon
