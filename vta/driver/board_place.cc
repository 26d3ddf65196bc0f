#include "vta/driver/board_place.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/driver/vta_backend.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

// The device tree gives both names.
constexpr std::string_view kUioName = "tilewright-vta";
constexpr std::string_view kMemoryPrefix = "tilewright-vta-";
constexpr uint64_t kLongestFile = 4096;
// Of u-dma-buf: O_SYNC maps the memory without the cache, but combines writes. In mode 1 a mapping
// without the cache is one of device memory, where memcpy faults on arm64.
constexpr int64_t kWriteCombine = 2;

// Numbers of sysfs are decimal, or hexadecimal with 0x.
std::optional<int64_t> NumberOf(std::string_view text) {
  const bool hex = text.starts_with("0x");
  if (hex) text.remove_prefix(2);
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= 0 ? std::optional(value) : std::nullopt;
}

absl::StatusOr<int64_t> ReadNumber(const std::string& path) {
  TW_ASSIGN(const std::string text, support::ReadFile(path, kLongestFile));
  const std::optional<int64_t> number = NumberOf(support::Trim(text));
  if (number.has_value()) return *number;
  return support::DataLoss("vta.board.sysfs", StrCat(path, ": expected a number, found ",
                                                     support::Quote(support::Trim(text), 40)));
}

std::string HexOf(int64_t value) {
  char digits[16] = {};
  const auto [end, error] = std::to_chars(std::begin(digits), std::end(digits), value, 16);
  return {std::begin(digits), error == std::errc() ? end : std::begin(digits)};
}

absl::Status CheckMemory(const BoardPlace& place, int64_t sync_mode) {
  if (place.memory_address % kDramAlignment != 0 || place.memory_bytes < kDramAlignment) {
    return support::FailedPrecondition(
        "vta.board.memory",
        StrCat(place.memory, ": expected memory at a multiple of ", kDramAlignment,
               " bytes, found ", place.memory_bytes, " bytes at 0x", HexOf(place.memory_address)));
  }
  if (!place.uncached || sync_mode == kWriteCombine) return absl::OkStatus();
  return support::FailedPrecondition(
      "vta.board.memory",
      StrCat(place.memory, ": expected sync_mode ", kWriteCombine, ", found ", sync_mode,
             "; write sync-mode = <", kWriteCombine, "> into its node of the device tree"));
}

// The buffer has the address of the registers in its name: numbers of UIO devices may change from
// start to start.
absl::Status FindMemory(const std::string& root, BoardPlace* place) {
  const std::string name = StrCat(kMemoryPrefix, HexOf(place->register_address));
  std::string folder;
  for (const char* driver : {"u-dma-buf", "udmabuf"}) {  // before version 2
    const std::string candidate = StrCat(root, "/sys/class/", driver, "/", name);
    if (support::IsDirectory(candidate)) folder = candidate;
  }
  if (folder.empty()) {
    return support::NotFound("vta.board.memory",
                             StrCat(place->registers, ": expected a buffer ", name,
                                    " of u-dma-buf, found none; add its "
                                    "node to the device tree and load the module u-dma-buf"));
  }
  place->memory = StrCat(root, "/dev/", name);
  TW_ASSIGN(place->memory_address, ReadNumber(folder + "/phys_addr"));
  TW_ASSIGN(place->memory_bytes, ReadNumber(folder + "/size"));
  place->memory_bytes -= place->memory_bytes % kDramAlignment;
  TW_ASSIGN(const int64_t coherent, ReadNumber(folder + "/dma_coherent"));
  place->uncached = coherent == 0;
  TW_ASSIGN(const int64_t sync_mode, ReadNumber(folder + "/sync_mode"));
  return CheckMemory(*place, sync_mode);
}

}  // namespace

absl::StatusOr<std::vector<BoardPlace>> FindBoards(const std::string& root) {
  std::vector<BoardPlace> places;
  const std::string uio = root + "/sys/class/uio";
  if (!support::IsDirectory(uio)) return places;
  TW_ASSIGN(const std::vector<std::string> devices, support::ListDir(uio));
  for (const std::string& device : devices) {
    const std::string folder = support::PathJoin(uio, device);
    const auto name = support::ReadFile(folder + "/name", kLongestFile);
    if (!name.ok() || support::Trim(*name) != kUioName) continue;
    BoardPlace place;
    place.registers = StrCat(root, "/dev/", device);
    TW_ASSIGN(place.register_address, ReadNumber(folder + "/maps/map0/addr"));
    TW_ASSIGN(place.register_bytes, ReadNumber(folder + "/maps/map0/size"));
    TW_TRY(FindMemory(root, &place));
    places.push_back(std::move(place));
  }
  std::sort(places.begin(), places.end(), [](const BoardPlace& a, const BoardPlace& b) {
    return a.register_address < b.register_address;
  });
  return places;
}

}  // namespace tilewright::vta
