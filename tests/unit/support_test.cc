#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/duration.h"
#include "deploy/support/hash.h"
#include "deploy/support/printable.h"
#include "deploy/support/rng.h"
#include "deploy/support/shortage.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "deploy/support/version.h"

namespace tilewright::support {
namespace internal {
void Sha256CompressPortable(uint32_t* state, const uint8_t* data, size_t blocks);
}
namespace {

absl::StatusOr<int> HalfOf(int value) {
  if (value % 2 != 0) {
    return InvalidArgument("test.half.odd", StrCat("expected an even number, found ", value));
  }
  return value / 2;
}

absl::StatusOr<int> QuarterOf(int value) {
  TW_ASSIGN(const int half, HalfOf(value));
  TW_ASSIGN(const int quarter, HalfOf(half));
  return quarter;
}

absl::Status CheckBoth(int first, int second, int* calls) {
  TW_TRY(HalfOf(first).status());
  ++*calls;
  TW_TRY(HalfOf(second).status());
  ++*calls;
  return absl::OkStatus();
}

TEST(StatusTest, MacrosReturnTheFirstErrorAndStop) {
  EXPECT_EQ(*QuarterOf(12), 3);
  EXPECT_EQ(Slug(QuarterOf(6).status()), "test.half.odd");
  int calls = 0;
  EXPECT_FALSE(CheckBoth(2, 3, &calls).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(CheckBoth(2, 4, &calls).ok());
  EXPECT_EQ(calls, 3);
}

TEST(StatusTest, SlugDetailAndContextComeApartAgain) {
  const absl::Status error = NotFound("area.thing.missing", "expected x: y");
  EXPECT_EQ(error.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Slug(error), "area.thing.missing");
  EXPECT_EQ(Detail(error), "expected x: y");
  EXPECT_EQ(StatusText(error), "area.thing.missing: expected x: y");
  EXPECT_EQ(StatusText(WithContext(error, "node 3")), "area.thing.missing: node 3: expected x: y");
  EXPECT_EQ(WithContext(error, "node 3").code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(WithContext(absl::OkStatus(), "node 3").ok());
  EXPECT_EQ(Slug(absl::OkStatus()), "");
  EXPECT_EQ(StatusText(absl::OkStatus()), "ok");
  EXPECT_EQ(StatusText(absl::Status(absl::StatusCode::kUnavailable, "")), "UNAVAILABLE");
}

TEST(StatusTest, ErrnoChoosesTheCode) {
  EXPECT_EQ(ErrnoError(ENOENT, "a.b.c", "f").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrnoError(ENOSPC, "a.b.c", "f").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoError(EROFS, "a.b.c", "f").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoError(EIO, "a.b.c", "f").code(), absl::StatusCode::kInternal);
  EXPECT_EQ(StatusText(ErrnoError(ENOENT, "a.b.c", "f")), "a.b.c: f: No such file or directory");
}

TEST(ShortageTest, TravelsWithTheStatus) {
  const absl::Status full = ErrnoError(ENOSPC, "file.write.failed", "f");
  EXPECT_EQ(ShortageOf(full), Shortage::kDiskFull);
  EXPECT_EQ(ShortageOf(WithContext(full, "node 3")), Shortage::kDiskFull);
  EXPECT_EQ(ShortageOf(CopyShortage(full, NotFound("a.b", "c"))), Shortage::kDiskFull);
  EXPECT_EQ(ShortageOf(ErrnoError(EDQUOT, "a.b.c", "f")), Shortage::kDiskFull);
  EXPECT_EQ(ShortageOf(ErrnoError(EROFS, "a.b.c", "f")), Shortage::kDiskReadOnly);
  EXPECT_EQ(ShortageOf(ErrnoError(EIO, "a.b.c", "f")), Shortage::kDiskFailing);
  EXPECT_EQ(ShortageOf(ErrnoError(ENOMEM, "a.b.c", "f")), Shortage::kMemory);
  EXPECT_EQ(ShortageOf(ErrnoError(EMFILE, "a.b.c", "f")), Shortage::kDescriptors);
  EXPECT_EQ(ShortageOf(ErrnoError(EAGAIN, "a.b.c", "f")), Shortage::kBusy);
}

TEST(ShortageTest, IsNoneWhereTryingAgainDoesNotHelp) {
  EXPECT_EQ(ShortageOf(absl::OkStatus()), Shortage::kNone);
  EXPECT_EQ(ShortageOf(ErrnoError(ENOENT, "a.b.c", "f")), Shortage::kNone);
  // A file of more bytes than allowed is too long tomorrow, too.
  EXPECT_EQ(ShortageOf(ResourceExhausted("file.read.too_large", "f")), Shortage::kNone);
  EXPECT_TRUE(MarkShortage(absl::OkStatus(), Shortage::kMemory).ok());
}

TEST(ShortageTest, EachHasItsNameAndItsText) {
  std::set<std::string> names, texts;
  for (int i = 0; i < kShortages; ++i) {
    names.insert(std::string(ShortageName(static_cast<Shortage>(i))));
    texts.insert(std::string(ShortageText(static_cast<Shortage>(i))));
    const absl::Status marked = MarkShortage(NotFound("a.b", "c"), static_cast<Shortage>(i));
    EXPECT_EQ(ShortageOf(marked), static_cast<Shortage>(i));
  }
  EXPECT_EQ(names.size(), kShortages);
  EXPECT_EQ(texts.size(), kShortages);
}

TEST(StatusDeathTest, CheckAbortsWithItsTextAndEvaluatesItOnlyThen) {
  int evaluated = 0;
  const auto text = [&] {
    ++evaluated;
    return "never seen";
  };
  TW_CHECK(1 + 1 == 2) << text();
  EXPECT_EQ(evaluated, 0);
  EXPECT_DEATH(TW_CHECK(1 + 1 == 3) << "sum " << 3, "check failed: 1 \\+ 1 == 3 sum 3");
  EXPECT_DEATH(MakeError(absl::StatusCode::kOk, "a", "b").IgnoreError(), "error code");
}

TEST(StringsTest, SplitAndJoinAreInverse) {
  for (const char* text : {"", ",", "a", "a,b", ",a,,b,"}) {
    EXPECT_EQ(Join(Split(text, ','), ","), text);
  }
  EXPECT_EQ(Split("a,,b", ',').size(), 3u);
  EXPECT_EQ(Join(std::vector<int>{1, 2, 3}, ", "), "1, 2, 3");
  EXPECT_EQ(Trim(" \t a b\n"), "a b");
  EXPECT_EQ(Trim("  "), "");
  EXPECT_EQ(ToLower("AbZ9_"), "abz9_");
}

TEST(StringsTest, NumbersParseWholeOrNotAtAll) {
  EXPECT_EQ(ParseInt64("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(ParseInt64("9223372036854775808"), std::nullopt);
  for (const char* text : {"", " 1", "1 ", "1x", "0x10", "+1", "1.0"}) {
    EXPECT_EQ(ParseInt64(text), std::nullopt) << text;
  }
  EXPECT_EQ(ParseUint64("18446744073709551615"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(ParseUint64("-1"), std::nullopt);
  EXPECT_EQ(ParseDouble("1e3"), 1000.0);
  EXPECT_EQ(ParseDouble("1e999"), std::nullopt);
  EXPECT_EQ(ParseDouble("1,5"), std::nullopt);
  EXPECT_TRUE(std::isnan(*ParseDouble("nan")));
}

TEST(StringsTest, FloatTextIsShortestAndRoundTrips) {
  EXPECT_EQ(FormatDouble(0.1), "0.1");
  EXPECT_EQ(FormatDouble(std::numeric_limits<double>::infinity()), "inf");
  Rng rng(7);
  for (int i = 0; i < 10'000; ++i) {
    const double value = std::ldexp(rng.Normal(), static_cast<int>(rng.UniformInt(-300, 300)));
    EXPECT_EQ(ParseDouble(FormatDouble(value)), value);
  }
  EXPECT_EQ(FormatFixed(2.0 / 3, 3), "0.667");
  EXPECT_EQ(FormatFixed(-1e20, 0), "-100000000000000000000");
}

TEST(StringsTest, HexAndQuote) {
  EXPECT_EQ(HexEncode(std::string("\x00\xff\x1a", 3)), "00ff1a");
  EXPECT_EQ(HexDecode("00FF1a"), std::string("\x00\xff\x1a", 3));
  EXPECT_EQ(HexDecode("0"), std::nullopt);
  EXPECT_EQ(HexDecode("0g"), std::nullopt);
  EXPECT_EQ(Hex64(0x1234abcd), "000000001234abcd");
  EXPECT_EQ(Quote("a\"b\\\n\x01"), "\"a\\\"b\\\\\\n\\u0001\"");
  EXPECT_EQ(Quote("abcdef", 3), "\"abc...\"");
}

TEST(DurationTest, WhatNoClockCanMeanIsClamped) {
  struct Parts {
    int64_t s;
    int32_t ns;
    int64_t seconds() const { return s; }
    int32_t nanos() const { return ns; }
  };
  EXPECT_EQ(DurationNs(Parts{2, 500'000'000}), 2'500'000'000);
  EXPECT_EQ(DurationMs(Parts{2, 999'999}), 2000);
  EXPECT_EQ(DurationMs(Parts{-1, -500'000'000}), -1500);
  const int64_t longest = kLongestDurationS * 1'000'000'000;
  EXPECT_EQ(DurationNs(Parts{INT64_MAX, 7}), longest + 7);
  EXPECT_EQ(DurationNs(Parts{INT64_MIN, 0}), -longest);
  EXPECT_EQ(UnixMicros(Parts{1, 2000}), 1'000'002);
  EXPECT_EQ(UnixMicros(Parts{INT64_MIN, -1}), 0);
  EXPECT_EQ(UnixMicros(Parts{INT64_MAX, INT32_MAX}), kLastUnixSecond * 1'000'000 + 999'999);
}

TEST(VersionTest, IsThatOfTheProject) { EXPECT_STREQ(Version(), TILEWRIGHT_PROJECT_VERSION); }

TEST(ClockTest, SystemClockGoesForwardAndFakeClockObeys) {
  SystemClock system;
  const int64_t before = system.NowNs();
  SleepMs(2);
  EXPECT_GE(system.NowNs() - before, 2'000'000);
  EXPECT_GT(system.WallMicros(), 1'600'000'000'000'000);
  FakeClock fake(5);
  const int64_t wall = fake.WallMicros();
  fake.AdvanceNs(3'000'000);
  EXPECT_EQ(fake.NowNs(), 3'000'005);
  EXPECT_EQ(fake.WallMicros(), wall + 3000);
  fake.SetWallMicros(1);
  EXPECT_EQ(fake.NowNs(), 3'000'005);
}

TEST(RngTest, SequencesAreFixedForEver) {
  // Records and goldens depend on these values.
  Rng rng(42);
  EXPECT_EQ(rng.NextU64(), 1546998764402558742u);
  EXPECT_EQ(rng.NextU64(), 6990951692964543102u);
  EXPECT_EQ(Rng(42).Split("a").NextU64(), Rng(42).Split("a").NextU64());
}

TEST(RngTest, SplitDependsOnSeedAndLabelOnly) {
  Rng drawn(1);
  for (int i = 0; i < 10; ++i) drawn.NextU64();
  EXPECT_EQ(drawn.Split("x").NextU64(), Rng(1).Split("x").NextU64());
  EXPECT_NE(Rng(1).Split("x").NextU64(), Rng(1).Split("y").NextU64());
  EXPECT_NE(Rng(1).Split("x").NextU64(), Rng(2).Split("x").NextU64());
  EXPECT_NE(Rng(1).Split(uint64_t{0}).NextU64(), Rng(1).Split(uint64_t{1}).NextU64());
}

TEST(RngTest, DistributionsHaveTheirShape) {
  Rng rng(3);
  std::vector<int> counts(7);
  for (int i = 0; i < 70'000; ++i) ++counts[rng.Uniform(7)];
  for (int count : counts) EXPECT_NEAR(count, 10'000, 500);
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double x = rng.Normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 100'000, 0, 0.02);
  EXPECT_NEAR(squares / 100'000, 1, 0.03);
  for (int i = 0; i < 1000; ++i) {
    const double u = rng.UniformDouble();
    EXPECT_TRUE(u >= 0 && u < 1);
  }
  EXPECT_EQ(rng.UniformInt(5, 5), 5);
}

TEST(RngTest, ShuffleKeepsTheItems) {
  Rng rng(9);
  std::vector<int> items(100);
  std::iota(items.begin(), items.end(), 0);
  const std::vector<int> before = items;
  rng.Shuffle(&items);
  EXPECT_NE(items, before);
  EXPECT_THAT(items, testing::UnorderedElementsAreArray(before));
}

TEST(HashTest, Sha256KnownAnswers) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256Hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(HashTest, Sha256IsTheSameInAnyPieces) {
  Rng rng(11);
  for (int round = 0; round < 200; ++round) {
    std::string data(rng.Uniform(400), '\0');
    for (char& c : data) c = static_cast<char>(rng.NextU64());
    Sha256 pieces;
    for (size_t at = 0; at < data.size();) {
      const size_t size = std::min<size_t>(data.size() - at, rng.Uniform(130));
      pieces.Update(data.data() + at, size);
      at += size;
    }
    EXPECT_EQ(DigestHex(pieces.Finish()), Sha256Hex(data));
  }
}

TEST(HashTest, PortableSha256AgreesWithTheOneInUse) {
  // One block that is the padded message "abc".
  std::vector<uint8_t> block(64);
  block[0] = 'a', block[1] = 'b', block[2] = 'c', block[3] = 0x80, block[63] = 24;
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  internal::Sha256CompressPortable(state, block.data(), 1);
  std::string hex;
  for (uint32_t word : state) hex += Hex64(word).substr(8);
  EXPECT_EQ(hex, Sha256Hex("abc"));
}

TEST(HashTest, StableHashesAreFixedForEver) {
  EXPECT_EQ(StableHash64("tilewright"), StableHash64(std::string("tilewright")));
  EXPECT_EQ(Hex64(StableHash64("tilewright")), "322d5f23790adfc7");
}

TEST(HashTest, HasherSeparatesItsParts) {
  std::set<uint64_t> seen;
  seen.insert(Hasher64().Add("ab").Add("c").Finish());
  seen.insert(Hasher64().Add("a").Add("bc").Finish());
  seen.insert(Hasher64().Add("abc").Finish());
  seen.insert(Hasher64().Add("abc").Add("").Finish());
  seen.insert(Hasher64().Add(uint64_t{0}).Finish());
  seen.insert(Hasher64().Add(0.0).Add(0.0).Finish());
  seen.insert(Hasher64().Finish());
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(Hasher64().Add(std::nan("1")).Finish(), Hasher64().Add(-std::nan("2")).Finish());
  EXPECT_NE(Hasher64().Add(0.0).Finish(), Hasher64().Add(-0.0).Finish());
  std::set<uint64_t> many;
  for (uint64_t i = 0; i < 100'000; ++i) many.insert(Hasher64().Add(i).Finish());
  EXPECT_EQ(many.size(), 100'000u);
}

TEST(PrintableTest, ATerminalObeysNothingOfIt) {
  using std::string_literals::operator""s;
  EXPECT_EQ(Printable("bench-3 µs 日本 \U0001F600 a\\b"), "bench-3 µs 日本 \U0001F600 a\\b");
  EXPECT_EQ(Printable("\x1b[2J\a\0\x7f"s), "\\u001b[2J\\u0007\\u0000\\u007f");
  EXPECT_EQ(Printable("a\u202Eb\u2066c\u200Bd\uFEFFe\u0085f\u2028g"),
            "a\\u202eb\\u2066c\\u200bd\\ufeffe\\u0085f\\u2028g");
  EXPECT_EQ(Printable("a\nb\tc\r"), "a\\u000ab\\u0009c\\u000d");
  EXPECT_EQ(Printable("a\nb\tc\r", LineBreaks::kKeep), "a\nb\tc\\u000d");
  // What is no UTF-8: single bytes, cut, too long, surrogates, beyond the end.
  EXPECT_EQ(Printable("\xff\x9b"
                      "31m"),
            "\\xff\\x9b31m");
  EXPECT_EQ(Printable("\xe2\x80"), "\\xe2\\x80");
  EXPECT_EQ(Printable("\xc0\x9b"), "\\xc0\\x9b");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_TRUE(IsUtf8("日本"));
  EXPECT_FALSE(IsUtf8("caf\xe9"));
  EXPECT_TRUE(CheckPrintable("Ana's board", "x.y.z", "name").ok());
  const absl::Status bad = CheckPrintable("evil\u202E", "x.y.z", "name");
  EXPECT_EQ(Slug(bad), "x.y.z");
  EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Printable(StatusText(bad)), StatusText(bad));
}

}  // namespace
}  // namespace tilewright::support
