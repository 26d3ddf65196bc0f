#include "deploy/runtime/tensor_io.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "deploy/runtime/compare.h"
#include "deploy/runtime/half_float.h"
#include "deploy/runtime/input_gen.h"
#include "deploy/support/file.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "gtest/gtest.h"

namespace tilewright::runtime {
namespace {

using module::Distribution;
using module::DType;

template <typename T>
std::string Raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
std::vector<T> Values(const std::string& bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

HostTensor Example(DType dtype) {
  HostTensor t;
  t.name = "x";
  t.dtype = dtype;
  t.shape = {2, 3};
  t.data.resize(static_cast<size_t>(6 * module::DTypeBytes(dtype)));
  for (int64_t i = 0; i < 6; ++i) StoreDouble(dtype, static_cast<double>(i % 2), t.data.data(), i);
  return t;
}

TEST(TensorProtoTest, RoundTripsEveryType) {
  for (int i = 0; i <= static_cast<int>(DType::kFloat64); ++i) {
    const HostTensor tensor = Example(static_cast<DType>(i));
    const auto read = ParseTensorProto(SerializeTensorProto(tensor));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->name, "x");
    EXPECT_EQ(read->dtype, tensor.dtype);
    EXPECT_EQ(read->shape, tensor.shape);
    EXPECT_EQ(read->data, tensor.data);
  }
}

TEST(TensorProtoTest, ReadsTypedFieldsPackedOrNot) {
  // dims 2 (unpacked), data_type FLOAT, float_data packed {1, 2}.
  const std::string floats("\x08\x02\x10\x01\x22\x08\x00\x00\x80\x3f\x00\x00\x00\x40", 14);
  auto read = ParseTensorProto(floats);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Values<float>(read->data), (std::vector<float>{1, 2}));
  // dims packed {1, 2}, FLOAT, float_data as two single values.
  const std::string single("\x0a\x02\x01\x02\x10\x01\x25\x00\x00\x80\x3f\x25\x00\x00\x00\x40", 16);
  read = ParseTensorProto(single);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->shape, (std::vector<int64_t>{1, 2}));
  // INT8 in int32_data: -1 takes ten bytes as a varint.
  const std::string narrow("\x08\x02\x10\x03\x2a\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x05",
                           17);
  read = ParseTensorProto(narrow);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Values<int8_t>(read->data), (std::vector<int8_t>{-1, 5}));
  // INT64 in int64_data, unpacked; a scalar has no dims.
  read = ParseTensorProto(std::string("\x10\x07\x38\x2a", 4));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Values<int64_t>(read->data), std::vector<int64_t>{42});
  // FLOAT16 bits in int32_data.
  read = ParseTensorProto(std::string("\x08\x01\x10\x0a\x28\x80\x78", 7));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Values<uint16_t>(read->data), std::vector<uint16_t>{0x3C00});
}

// Integers of 4 and 2 bits are bytes here; the first is in the low bits of its byte.
TEST(TensorProtoTest, IntegersOfLessThanAByte) {
  const struct {
    char type;
    DType dtype;
    std::vector<int> values;
  } cases[] = {{21, DType::kUInt8, {7, 14, 9}},
               {22, DType::kInt8, {7, -2, -7}},
               {25, DType::kUInt8, {3, 1, 2}},
               {26, DType::kInt8, {-1, 1, -2}}};
  for (const auto& c : cases) {
    const bool two_bits = c.type > 24;
    // dims {3}, data_type, raw_data
    std::string bytes("\x08\x03\x10", 3);
    bytes += c.type;
    bytes += two_bits ? std::string("\x4a\x01\x27") : std::string("\x4a\x02\xe7\x09");
    const auto read = ParseTensorProto(bytes);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->dtype, c.dtype);
    EXPECT_EQ(read->shape, (std::vector<int64_t>{3}));
    ASSERT_EQ(read->data.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      const auto byte = static_cast<uint8_t>(read->data[i]);
      EXPECT_EQ(c.dtype == DType::kInt8 ? static_cast<int8_t>(byte) : byte, c.values[i]);
    }
    bytes[1] = 5;  // more elements than bytes
    EXPECT_FALSE(ParseTensorProto(bytes).ok());
  }
}

TEST(TensorProtoTest, WhatIsNotATensorIsAnError) {
  const auto slug = [](const std::string& bytes) {
    return support::Slug(ParseTensorProto(bytes).status());
  };
  const std::string good = SerializeTensorProto(Example(DType::kFloat32));
  EXPECT_EQ(slug(""), "runtime.tensor_pb.broken");
  EXPECT_EQ(slug("not a tensor"), "runtime.tensor_pb.broken");
  EXPECT_EQ(slug(good.substr(0, good.size() - 1)), "runtime.tensor_pb.broken");
  EXPECT_EQ(slug(std::string("\x08\x03\x10\x01\x4a\x04\x00\x00\x00\x00", 10)),
            "runtime.tensor_pb.size");
  EXPECT_EQ(slug(std::string("\x10\x08", 2)), "runtime.tensor_pb.dtype") << "strings";
  // dims -1, and dims whose product overflows.
  EXPECT_EQ(slug(std::string("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x01", 13)),
            "runtime.tensor_pb.broken");
  std::string huge;
  for (int i = 0; i < 5; ++i) huge += "\x08\x80\x80\x80\x80\x08";
  EXPECT_EQ(slug(huge + "\x10\x01"), "runtime.tensor_pb.broken");
  EXPECT_EQ(slug(std::string("\x10\x01\x70\x01", 4)), "runtime.tensor_pb.kind") << "external";
}

TEST(NpyTest, RoundTripsEveryType) {
  for (int i = 0; i <= static_cast<int>(DType::kFloat64); ++i) {
    HostTensor tensor = Example(static_cast<DType>(i));
    auto read = ParseNpy(SerializeNpy(tensor));
    ASSERT_TRUE(read.ok()) << read.status();
    if (tensor.dtype == DType::kBFloat16) {
      EXPECT_EQ(read->dtype, DType::kFloat32) << "NumPy has no bfloat16";
      *read = RoundToBFloat16(*read);
    }
    EXPECT_EQ(read->dtype, tensor.dtype);
    EXPECT_EQ(read->shape, tensor.shape);
    EXPECT_EQ(read->data, tensor.data);
  }
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}, {0, 4}, {1, 1, 1, 1}}) {
    HostTensor tensor;
    tensor.shape = shape;
    tensor.data.resize(static_cast<size_t>(*TensorBytes(tensor.dtype, shape)));
    const std::string bytes = SerializeNpy(tensor);
    EXPECT_EQ((bytes.size() - tensor.data.size()) % 64, 0u) << "data starts aligned";
    const auto read = ParseNpy(bytes);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->shape, shape);
  }
}

std::string Npy(const std::string& header, const std::string& data, int version = 1) {
  std::string out("\x93NUMPY", 6);
  out += static_cast<char>(version);
  out += '\0';
  const int length_bytes = version == 1 ? 2 : 4;
  for (int i = 0; i < length_bytes; ++i) {
    out += static_cast<char>((header.size() >> (8 * i)) & 0xFF);
  }
  return out + header + data;
}

TEST(NpyTest, HeadersOfOtherWritersAndHostileOnes) {
  const std::string eight(8, '\0');
  const auto slug = [](const std::string& bytes) {
    return support::Slug(ParseNpy(bytes).status());
  };
  EXPECT_TRUE(
      ParseNpy(Npy("{\"shape\": (2,), 'descr':'<f4','fortran_order': False}\n", eight)).ok());
  EXPECT_TRUE(
      ParseNpy(Npy("{'shape': (1,2), 'descr':'<f4','fortran_order': False}", eight, 2)).ok());
  EXPECT_TRUE(ParseNpy(Npy("{'shape': (2,), 'descr':'<f4','fortran_order': True}", eight)).ok())
      << "one dimension has only one order";
  EXPECT_EQ(slug(Npy("{'shape': (1,2), 'descr':'<f4','fortran_order': True}", eight)),
            "runtime.npy.fortran_order");
  EXPECT_EQ(slug(Npy("{'shape': (2,), 'descr':'>f4','fortran_order': False}", eight)),
            "runtime.npy.dtype");
  EXPECT_EQ(slug(Npy("{'shape': (2,), 'descr':'|O','fortran_order': False}", eight)),
            "runtime.npy.dtype");
  EXPECT_EQ(slug(Npy("{'shape': (3,), 'descr':'<f4','fortran_order': False}", eight)),
            "runtime.npy.size");
  EXPECT_EQ(slug(Npy("{'shape': (9999999999999,9999999999), 'descr':'<f4',"
                     "'fortran_order': False}",
                     eight)),
            "runtime.npy.size");
  EXPECT_EQ(
      slug(Npy("{'shape': (99999999999999999999,), 'descr':'<f4','fortran_order': False}", eight)),
      "runtime.npy.header");
  EXPECT_EQ(slug(Npy("{'shape': (2,), 'descr':'<f4'}", eight)), "runtime.npy.header");
  EXPECT_EQ(
      slug(Npy("{'shape': (2,), 'shape': (2,), 'descr':'<f4','fortran_order': False}", eight)),
      "runtime.npy.header");
  EXPECT_EQ(slug(Npy("{", eight)), "runtime.npy.header");
  EXPECT_EQ(slug(std::string("\x93NUMPY\x01\x00\xff\xff{", 11)), "runtime.npy.header");
  EXPECT_EQ(slug("not numpy at all"), "runtime.npy.magic");
  EXPECT_EQ(slug(Npy("{}", eight, 3)), "runtime.npy.header");
}

TEST(NpyTest, BFloat16IsExactOneWayAndRoundedTheOther) {
  HostTensor all{"x", DType::kBFloat16, {65536}, ""};
  for (uint32_t bits = 0; bits < 65536; ++bits) all.data += Raw<uint16_t>({uint16_t(bits)});
  const HostTensor wide = *ParseNpy(SerializeNpy(all));
  const HostTensor back = RoundToBFloat16(wide);
  const auto floats = Values<float>(wide.data);
  const auto given = Values<uint16_t>(all.data), got = Values<uint16_t>(back.data);
  for (size_t i = 0; i < floats.size(); ++i) {
    if (std::isnan(floats[i])) {
      EXPECT_TRUE(std::isnan(BFloat16ToDouble(got[i]))) << i;
    } else {
      EXPECT_EQ(got[i], given[i]) << i;
      EXPECT_EQ(double{floats[i]}, BFloat16ToDouble(given[i])) << i;
    }
  }
  const HostTensor between{"x", DType::kFloat32, {2}, Raw<float>({1.00390625f, 1.01171875f})};
  EXPECT_EQ(Values<uint16_t>(RoundToBFloat16(between).data),
            (std::vector<uint16_t>{0x3F80, 0x3F82}))
      << "ties to even";
}

TEST(TensorFileTest, TheNameDecidesTheFormat) {
  const auto dir = support::TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const HostTensor tensor = Example(DType::kInt32);
  for (const char* name : {"a.npy", "a.pb"}) {
    ASSERT_TRUE(WriteTensorFile(dir->File(name), tensor).ok());
    const auto read = ReadTensorFile(dir->File(name));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->data, tensor.data);
  }
  EXPECT_EQ(ReadTensorFile(dir->File("none.pb")).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(support::WriteFileAtomic(dir->File("bad.npy"), "junk").ok());
  const absl::Status bad = ReadTensorFile(dir->File("bad.npy")).status();
  EXPECT_NE(support::Detail(bad).find("bad.npy"), std::string::npos) << "the error names the file";
}

// Whatever the bytes, the readers answer with a tensor whose data fits its shape, or an error.
TEST(TensorFileTest, RandomDamageNeverCrashes) {
  constexpr uint64_t kSeed = 4711;
  constexpr int kRounds = 20000;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  support::Rng rng(kSeed);
  const std::string pb = SerializeTensorProto(Example(DType::kFloat32));
  const std::string npy = SerializeNpy(Example(DType::kFloat32));
  const auto check = [](const absl::StatusOr<HostTensor>& tensor) {
    if (!tensor.ok()) return !support::Slug(tensor.status()).empty();
    const auto bytes = TensorBytes(tensor->dtype, tensor->shape);
    return bytes.has_value() && *bytes == static_cast<int64_t>(tensor->data.size());
  };
  for (int round = 0; round < kRounds; ++round) {
    for (const std::string* good : {&pb, &npy}) {
      std::string bad = *good;
      const auto edits = 1 + rng.Uniform(4);
      for (uint64_t e = 0; e < edits && !bad.empty(); ++e) {
        const size_t at = rng.Uniform(bad.size());
        const auto kind = rng.Uniform(3);
        if (kind == 0) bad[at] = static_cast<char>(rng.Uniform(256));
        if (kind == 1) bad.erase(at, 1 + rng.Uniform(4));
        if (kind == 2) bad.insert(at, std::string(1 + rng.Uniform(9), '\xff'));
      }
      ASSERT_TRUE(check(ParseTensorProto(bad))) << round;
      ASSERT_TRUE(check(ParseNpy(bad))) << round;
    }
  }
}

// The numbers below were computed by an independent program from the header's text. They never
// change: expected outputs in logs depend on them.
TEST(InputGenTest, NumbersAreTheContract) {
  std::vector<float> f(4);
  ASSERT_TRUE(
      GenerateInput(DType::kFloat32, 4, {Distribution::Kind::kUniform, -1, 1}, 42, f.data()).ok());
  EXPECT_EQ(Values<uint32_t>(Raw(f)),
            (std::vector<uint32_t>{0x3ef75cc9, 0xbf2e203a, 0xbee2b663, 0xbe9f8c78}));
  ASSERT_TRUE(
      GenerateInput(DType::kFloat32, 4, {Distribution::Kind::kNormal, 1, 0.5}, 7, f.data()).ok());
  EXPECT_EQ(Values<uint32_t>(Raw(f)),
            (std::vector<uint32_t>{0x3f29ff00, 0x3f608980, 0x3f92be80, 0x3f5da900}));
  std::vector<int8_t> i(8);
  ASSERT_TRUE(
      GenerateInput(DType::kInt8, 8, {Distribution::Kind::kIntRange, -3, 3}, 9, i.data()).ok());
  EXPECT_EQ(i, (std::vector<int8_t>{-1, -1, 3, -3, 2, -2, 3, 0}));
  std::vector<uint16_t> h(4);
  ASSERT_TRUE(
      GenerateInput(DType::kFloat16, 4, {Distribution::Kind::kUniform, 0, 1}, 3, h.data()).ok());
  EXPECT_EQ(h, (std::vector<uint16_t>{0x2f43, 0x399a, 0x38e7, 0x2caa}));
}

TEST(InputGenTest, StaysInRangeWithTheRightMoments) {
  constexpr int kCount = 100000;
  std::vector<float> f(kCount);
  ASSERT_TRUE(
      GenerateInput(DType::kFloat32, kCount, {Distribution::Kind::kUniform, 2, 3}, 1, f.data())
          .ok());
  double sum = 0;
  for (const float x : f) {
    ASSERT_TRUE(x >= 2 && x < 3);
    sum += x;
  }
  EXPECT_NEAR(sum / kCount, 2.5, 0.01);
  std::vector<double> d(kCount);
  ASSERT_TRUE(
      GenerateInput(DType::kFloat64, kCount, {Distribution::Kind::kNormal, 5, 2}, 1, d.data())
          .ok());
  double square = 0;
  sum = 0;
  for (const double x : d) {
    sum += x;
    square += (x - 5) * (x - 5);
  }
  EXPECT_NEAR(sum / kCount, 5, 0.05);
  EXPECT_NEAR(std::sqrt(square / kCount), 2, 0.05);
  // 16-bit types have few values, so rounding would often reach the excluded end.
  std::vector<uint16_t> b(kCount);
  ASSERT_TRUE(
      GenerateInput(DType::kBFloat16, kCount, {Distribution::Kind::kUniform, -1, 1}, 1, b.data())
          .ok());
  for (const uint16_t x : b) ASSERT_LT(BFloat16ToDouble(x), 1.0);
}

TEST(InputGenTest, ImpossibleRangesAreErrors) {
  char out[64];
  const auto slug = [&](DType dtype, Distribution d) {
    return support::Slug(GenerateInput(dtype, 1, d, 0, out));
  };
  using Kind = Distribution::Kind;
  EXPECT_EQ(slug(DType::kFloat32, {Kind::kUniform, 1, 1}), "runtime.input_gen.parameters");
  EXPECT_EQ(slug(DType::kFloat32, {Kind::kNormal, 0, -1}), "runtime.input_gen.parameters");
  EXPECT_EQ(slug(DType::kFloat32, {Kind::kUniform, 0, INFINITY}), "runtime.input_gen.parameters");
  EXPECT_EQ(slug(DType::kInt8, {Kind::kIntRange, 0, 128}), "runtime.input_gen.range");
  EXPECT_EQ(slug(DType::kUInt8, {Kind::kIntRange, -1, 3}), "runtime.input_gen.range");
  EXPECT_EQ(slug(DType::kFloat16, {Kind::kUniform, 0, 1e6}), "runtime.input_gen.range");
  EXPECT_EQ(slug(DType::kInt8, {Kind::kIntRange, -128, 127}), "");
  EXPECT_EQ(slug(DType::kInt8, {Kind::kUniform, -128, 128}), "");
  EXPECT_EQ(slug(DType::kInt32, {Kind::kIntRange, 0.5, 3}), "runtime.input_gen.parameters");
}

TEST(HalfFloatTest, EveryBitPatternRoundTrips) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const double half = HalfToDouble(pattern);
    const double brain = BFloat16ToDouble(pattern);
    if (!std::isnan(half)) {
      ASSERT_EQ(DoubleToHalf(half), pattern) << bits;
    }
    if (!std::isnan(brain)) {
      ASSERT_EQ(DoubleToBFloat16(brain), pattern) << bits;
    }
  }
  EXPECT_TRUE(std::isnan(HalfToDouble(DoubleToHalf(NAN))));
}

TEST(HalfFloatTest, RoundsTiesToEvenAndOverflowsToInfinity) {
  EXPECT_EQ(DoubleToHalf(65504), 0x7BFF);
  EXPECT_EQ(DoubleToHalf(65519.99), 0x7BFF);
  EXPECT_EQ(DoubleToHalf(65520), 0x7C00);
  EXPECT_EQ(DoubleToHalf(-1e9), 0xFC00);
  EXPECT_EQ(DoubleToHalf(1 + 0x1p-11), 0x3C00);
  EXPECT_EQ(DoubleToHalf(1 + 3 * 0x1p-11), 0x3C02);
  EXPECT_EQ(DoubleToHalf(0x1p-25), 0x0000);
  EXPECT_EQ(DoubleToHalf(0x1.8p-25), 0x0001);
  EXPECT_EQ(DoubleToBFloat16(1 + 0x1p-8), 0x3F80);
  EXPECT_EQ(DoubleToBFloat16(3.4e38), 0x7F80);
}

TEST(CompareTest, ToleranceNanAndInfinity) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto mismatches = [](float a, float e, double abs, double rel) {
    return CompareTensors(DType::kFloat32, &a, &e, 1, {abs, rel}).mismatches;
  };
  EXPECT_EQ(mismatches(1.0f, 1.0f, 0, 0), 0);
  EXPECT_EQ(mismatches(1.0f, 1.1f, 0, 0), 1);
  EXPECT_EQ(mismatches(1.0f, 1.1f, 0.11, 0), 0);
  EXPECT_EQ(mismatches(100.0f, 101.0f, 0, 0.01), 0);
  EXPECT_EQ(mismatches(kNan, kNan, 0, 0), 0);
  EXPECT_EQ(mismatches(kNan, 1, 1e9, 1e9), 1);
  EXPECT_EQ(mismatches(1, kNan, 1e9, 1e9), 1);
  EXPECT_EQ(mismatches(kInf, kInf, 0, 0), 0);
  EXPECT_EQ(mismatches(kInf, -kInf, 1e9, 1e9), 1);
  EXPECT_EQ(mismatches(3e38f, kInf, 1e9, 1e9), 1);
}

TEST(CompareTest, ReportsWhereAndHowMuch) {
  const std::vector<float> e = {3, 4, 0, 0};
  const std::vector<float> a = {3, 4, 0, 0.5};
  const CompareResult r = CompareTensors(DType::kFloat32, a.data(), e.data(), 4, {0.1, 0});
  EXPECT_EQ(r.mismatches, 1);
  EXPECT_EQ(r.first_mismatch, 3);
  EXPECT_DOUBLE_EQ(r.max_abs_diff, 0.5);
  EXPECT_DOUBLE_EQ(r.max_abs_expected, 4);
  EXPECT_DOUBLE_EQ(r.relative_norm, 0.1);
  EXPECT_EQ(CompareText(r),
            "1 of 4 elements differ: first at [3]: 0.5, expected 0; max |a-e| 0.5, |a-e|/|e| 0.1");
}

TEST(CompareTest, LargeIntegersAreExact) {
  const int64_t a = (int64_t{1} << 60) + 1;
  const int64_t e = int64_t{1} << 60;
  EXPECT_EQ(CompareTensors(DType::kInt64, &a, &e, 1, {}).mismatches, 1);
  EXPECT_EQ(CompareTensors(DType::kInt64, &e, &e, 1, {}).mismatches, 0);
}

TEST(CompareTest, StoresSaturateAndTruncate) {
  int8_t i8 = 0;
  StoreDouble(DType::kInt8, 300, &i8, 0);
  EXPECT_EQ(i8, 127);
  StoreDouble(DType::kInt8, -2.9, &i8, 0);
  EXPECT_EQ(i8, -2);
  StoreDouble(DType::kInt8, NAN, &i8, 0);
  EXPECT_EQ(i8, 0);
  int64_t i64 = 0;
  StoreDouble(DType::kInt64, 1e30, &i64, 0);
  EXPECT_EQ(i64, INT64_MAX);
  uint64_t u64 = 7;
  StoreDouble(DType::kUInt64, -1, &u64, 0);
  EXPECT_EQ(u64, 0u);
}

}  // namespace
}  // namespace tilewright::runtime
