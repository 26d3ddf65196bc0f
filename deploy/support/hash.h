// Hashes that are the same on every platform and in every version: SHA-256 names artifacts, the
// 64-bit hashes name programs, tasks and features. Value types, not thread-safe; functions are
// pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tilewright::support {

// Incremental SHA-256 (FIPS 180-4), with the processor's instructions where it has them. Own code:
// the runtime links no crypto library.
class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  Sha256();
  void Update(const void* data, size_t size);
  void Update(std::string_view data) { Update(data.data(), data.size()); }
  // The digest of everything so far. REQUIRES: called once, nothing after it.
  Digest Finish();

 private:
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> block_;
  size_t block_size_ = 0;
  uint64_t total_bytes_ = 0;
};

// 64 lower-case hexadecimal digits.
std::string Sha256Hex(std::string_view data);
std::string DigestHex(const Sha256::Digest& digest);
// Whether the text could be one: 64 lower-case hexadecimal digits.
bool IsSha256Hex(std::string_view text);

// Well mixed over all 64 bits; part of stored names, so its values never change.
uint64_t StableHash64(std::string_view data);

// A StableHash64 over a sequence of typed values; ("ab", "c") and ("a", "bc") differ.
class Hasher64 {
 public:
  Hasher64& Add(uint64_t value);
  Hasher64& Add(int64_t value) { return Add(static_cast<uint64_t>(value)); }
  Hasher64& Add(int value) { return Add(static_cast<int64_t>(value)); }
  // By bit pattern, with -0.0 and 0.0 different and all NaNs alike.
  Hasher64& Add(double value);
  Hasher64& Add(std::string_view value);
  Hasher64& Add(const char* value) { return Add(std::string_view(value)); }
  uint64_t Finish() const;

 private:
  uint64_t state_ = 0x2545f4914f6cdd1dULL;
  uint64_t count_ = 0;
};

}  // namespace tilewright::support
