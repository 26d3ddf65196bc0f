// `tilewright devices …`: shows the devices of the fleet, and why a device gets no work.
#pragma once

#include <string>
#include <vector>

#include "tuner_server/cli/server_place.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

int DevicesList(const ServerPlace& server, OutputFormat format);
int DevicesGet(const ServerPlace& server, const std::string& device, OutputFormat format);
// drain = finish what runs, take nothing new; undrain = back into service.
int DevicesDrain(const ServerPlace& server, const std::string& device, bool drain,
                 const std::string& reason, bool now);
int DevicesHold(const ServerPlace& server, const std::string& device, const std::string& holder,
                const std::string& purpose, double minutes);
// Makes the device's agent run the operator's reset command.
int DevicesReset(const ServerPlace& server, const std::string& device, const std::string& reason);
// Who uses the fleet and how much of it.
int DevicesForget(const ServerPlace& server, const std::vector<std::string>& devices);
int DevicesShares(const ServerPlace& server, OutputFormat format);
int DevicesRelease(const ServerPlace& server, const std::string& hold);

}  // namespace tilewright::cli
