// The kinds of devices, which are the kinds of targets: the first word of a target string. Every
// list of kinds and every check of one derives from this table. Pure functions; thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tilewright::support {

struct DeviceKind {
  std::string_view name;
  bool compiled = false;  // `compile` and `tune` make modules for it
  bool measured = false;  // agents measure on it: needs a self test, and a plug-in unless it is cpu
};
std::span<const DeviceKind> DeviceKinds();
// Returns null if there is no such kind.
const DeviceKind* FindDeviceKind(std::string_view name);
// Returns the names of the kinds for which `fact` holds (null: of all), in the table's order.
std::string DeviceKindNames(bool DeviceKind::* fact, std::string_view separator);

}  // namespace tilewright::support
