// What the reader and the writer of module files share. For this folder only.
#pragma once

#include <cstdint>
#include <string_view>

#include "deploy/support/hash.h"

namespace tilewright::module {

inline constexpr std::string_view kMagic = "TWMODULE";
inline constexpr uint64_t kHeaderBytes = 64;
inline constexpr uint64_t kEntryBytes = 64;
inline constexpr uint64_t kManifestAlignment = 64;
inline constexpr uint64_t kPageAlignment = 4096;
inline constexpr uint32_t kMaxSections = 65536;
inline constexpr size_t kDigestBytes = 32;

enum SectionKind : uint32_t { kManifest = 1, kCode = 2, kConstants = 3 };

struct Section {
  uint32_t kind = 0;
  uint32_t index = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  support::Sha256::Digest digest{};
};

inline uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

inline uint64_t AlignmentOf(uint32_t kind) {
  return kind == kManifest ? kManifestAlignment : kPageAlignment;
}

inline support::Sha256::Digest DigestOf(std::string_view data) {
  support::Sha256 hash;
  hash.Update(data);
  return hash.Finish();
}

}  // namespace tilewright::module
