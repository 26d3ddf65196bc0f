/* GPUs of phones: the names of their machines in targets and fingerprints (config), and which
 * device has which. For plug-ins and the compiler's table of machines; C++ without libraries.
 * Thread-safe. */
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

/* Arm's Mali of the architecture Valhall and later: threads go in step by sixteen. */
#define TW_PHONE_VALHALL "valhall"
/* Qualcomm's Adreno from the series 600 on, by at least sixty-four. */
#define TW_PHONE_ADRENO "adreno"

namespace tilewright::plugin {

/* Returns the number behind the last `word` of `text`, "(TM)" and spaces; -1 if there is none. */
constexpr int NumberBehind(std::string_view text, std::string_view word) {
  const size_t at = text.rfind(word);
  if (at == std::string_view::npos) return -1;
  text.remove_prefix(at + word.size());
  text.remove_prefix(std::min(text.find_first_not_of(" (TM)"), text.size()));
  int number = -1;
  for (size_t i = 0; i < std::min<size_t>(text.size(), 5) && text[i] >= '0' && text[i] <= '9'; ++i)
    number = 10 * std::max(number, 0) + (text[i] - '0');
  return number;
}

/* Returns the machine of a device by what its driver calls it: its name, or several of its texts
 * one behind the other ("Mali-G78 r0p1", "Adreno (TM) 730"). Empty: none of these. */
constexpr std::string_view PhoneGpuOf(std::string_view device) {
  constexpr int kBifrost[] = {31, 51, 52, 71, 72, 76}, kFirstAdreno = 600;
  if (device.find("Immortalis-G") != std::string_view::npos) return TW_PHONE_VALHALL;
  const int mali = NumberBehind(device, "Mali-G");
  if (std::ranges::find(kBifrost, mali) != std::end(kBifrost)) return {};
  if (mali > 0) return TW_PHONE_VALHALL;
  return NumberBehind(device, "Adreno") >= kFirstAdreno ? TW_PHONE_ADRENO : std::string_view();
}

}  // namespace tilewright::plugin
