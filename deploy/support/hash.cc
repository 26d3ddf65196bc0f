#include "deploy/support/hash.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "deploy/support/strings.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tilewright::support {
namespace {

constexpr std::array<uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t LoadBigEndian(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | static_cast<uint32_t>(bytes[3]);
}

void StoreBigEndian(uint32_t value, uint8_t* bytes) {
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

void CompressPortable(uint32_t* state, const uint8_t* data, size_t blocks) {
  for (; blocks > 0; --blocks, data += 64) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) w[i] = LoadBigEndian(data + 4 * i);
    for (int i = 16; i < 64; ++i) {
      const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; ++i) {
      const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRoundConstants[i] + w[i];
      const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = d + t1;
      d = c;
      c = b;
      b = a;
      a = t1 + t2;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
  }
}

#if defined(__x86_64__)

// The SHA instructions keep the state as the word pairs (A B E F) and (C D G H) and do two rounds
// at a time; four message registers hold the sliding window of sixteen schedule words.
__attribute__((target("sha,sse4.1,ssse3"))) void CompressShaNi(uint32_t* state, const uint8_t* data,
                                                               size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const __m128i dcba = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state));
  const __m128i hgfe = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state + 4));
  const __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(hgfe, 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; blocks > 0; --blocks, data += 64) {
    const __m128i saved_abef = abef;
    const __m128i saved_cdgh = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) {
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + i), swap);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      if (i >= 4) {
        // w[i] from w[i-4], w[i-3], w[i-2], w[i-1], four words each.
        const __m128i& previous = w[(i + 3) & 3];
        __m128i sum = _mm_sha256msg1_epu32(w[i & 3], w[(i + 1) & 3]);
        sum = _mm_add_epi32(sum, _mm_alignr_epi8(previous, w[(i + 2) & 3], 4));
        w[i & 3] = _mm_sha256msg2_epu32(sum, previous);
      }
      const __m128i k =
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(kRoundConstants.data() + 4 * i));
      const __m128i wk = _mm_add_epi32(w[i & 3], k);
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));
    }
    abef = _mm_add_epi32(abef, saved_abef);
    cdgh = _mm_add_epi32(cdgh, saved_cdgh);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

bool HasShaNi() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    return (b & (1u << 29)) != 0 && __builtin_cpu_supports("sse4.1");
  }();
  return has;
}

#endif

void Compress(uint32_t* state, const uint8_t* data, size_t blocks) {
#if defined(__x86_64__)
  if (HasShaNi()) return CompressShaNi(state, data, blocks);
#endif
  CompressPortable(state, data, blocks);
}

// The finalizer of MurmurHash3: every input bit changes every output bit with probability one half.
uint64_t Mix(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdULL;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53ULL;
  value ^= value >> 33;
  return value;
}

}  // namespace

namespace internal {
// For the test that holds both implementations against each other.
void Sha256CompressPortable(uint32_t* state, const uint8_t* data, size_t blocks) {
  CompressPortable(state, data, blocks);
}
}  // namespace internal

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::Update(const void* data, size_t size) {
  if (size == 0) return;
  const auto* bytes = static_cast<const uint8_t*>(data);
  total_bytes_ += size;
  if (block_size_ > 0) {
    const size_t take = std::min(size, block_.size() - block_size_);
    std::memcpy(block_.data() + block_size_, bytes, take);
    block_size_ += take;
    bytes += take;
    size -= take;
    if (block_size_ < block_.size()) return;
    Compress(state_.data(), block_.data(), 1);
    block_size_ = 0;
  }
  Compress(state_.data(), bytes, size / 64);
  block_size_ = size % 64;
  std::memcpy(block_.data(), bytes + size - block_size_, block_size_);
}

Sha256::Digest Sha256::Finish() {
  const uint64_t bits = total_bytes_ * 8;
  const uint8_t end_mark = 0x80;
  Update(&end_mark, 1);
  const std::array<uint8_t, 64> zeros{};
  const size_t padding = (block_size_ <= 56 ? 56 : 120) - block_size_;
  Update(zeros.data(), padding);
  std::array<uint8_t, 8> length;
  StoreBigEndian(static_cast<uint32_t>(bits >> 32), length.data());
  StoreBigEndian(static_cast<uint32_t>(bits), length.data() + 4);
  Update(length.data(), length.size());
  Digest digest;
  for (int i = 0; i < 8; ++i) StoreBigEndian(state_[i], digest.data() + 4 * i);
  return digest;
}

std::string DigestHex(const Sha256::Digest& digest) {
  return HexEncode({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

bool IsSha256Hex(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string Sha256Hex(std::string_view data) {
  Sha256 hash;
  hash.Update(data);
  return DigestHex(hash.Finish());
}

uint64_t StableHash64(std::string_view data) { return Hasher64().Add(data).Finish(); }

Hasher64& Hasher64::Add(uint64_t value) {
  state_ = std::rotl(state_ ^ Mix(value + 0x9e3779b97f4a7c15ULL * ++count_), 27) *
               0x9fb21c651e98df25ULL +
           0x52dce729;
  return *this;
}

Hasher64& Hasher64::Add(double value) {
  if (std::isnan(value)) return Add(uint64_t{0x7ff8000000000000ULL});
  return Add(std::bit_cast<uint64_t>(value));
}

Hasher64& Hasher64::Add(std::string_view value) {
  Add(static_cast<uint64_t>(value.size()));
  for (size_t at = 0; at < value.size(); at += 8) {
    uint64_t word = 0;
    for (size_t i = 0; i < 8 && at + i < value.size(); ++i) {
      word |= static_cast<uint64_t>(static_cast<unsigned char>(value[at + i])) << (8 * i);
    }
    Add(word);
  }
  return *this;
}

uint64_t Hasher64::Finish() const { return Mix(state_ ^ count_); }

}  // namespace tilewright::support
