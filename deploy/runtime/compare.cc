#include "deploy/runtime/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "deploy/runtime/half_float.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {
namespace {

using module::DType;

template <typename T>
T Load(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

template <typename T>
void Store(T value, void* data, int64_t index) {
  std::memcpy(static_cast<char*>(data) + index * static_cast<int64_t>(sizeof(T)), &value,
              sizeof(T));
}

// Truncates towards zero; beyond the type's range its nearest bound, NaN 0.
template <typename T>
T SaturatingCast(double value) {
  if (std::isnan(value)) return 0;
  // The upper bound of 64-bit types is not a double; the first double above it is exact.
  const double above = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (value >= above) return std::numeric_limits<T>::max();
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) {
    return std::numeric_limits<T>::min();
  }
  return static_cast<T>(value);
}

bool Is64BitInt(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kUInt64; }

bool WithinTolerance(double a, double e, const module::Tolerance& tolerance) {
  if (std::isnan(a) || std::isnan(e)) return std::isnan(a) && std::isnan(e);
  if (std::isinf(a) || std::isinf(e)) return a == e;
  return std::abs(a - e) <= tolerance.abs + tolerance.rel * std::abs(e);
}

}  // namespace

double ElementAsDouble(DType dtype, const void* data, int64_t index) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return Load<uint8_t>(data, index);
    case DType::kInt8:
      return Load<int8_t>(data, index);
    case DType::kInt16:
      return Load<int16_t>(data, index);
    case DType::kUInt16:
      return Load<uint16_t>(data, index);
    case DType::kInt32:
      return Load<int32_t>(data, index);
    case DType::kUInt32:
      return Load<uint32_t>(data, index);
    case DType::kInt64:
      return static_cast<double>(Load<int64_t>(data, index));
    case DType::kUInt64:
      return static_cast<double>(Load<uint64_t>(data, index));
    case DType::kFloat16:
      return HalfToDouble(Load<uint16_t>(data, index));
    case DType::kBFloat16:
      return BFloat16ToDouble(Load<uint16_t>(data, index));
    case DType::kFloat32:
      return Load<float>(data, index);
    case DType::kFloat64:
      return Load<double>(data, index);
  }
  return 0;
}

void StoreDouble(DType dtype, double value, void* data, int64_t index) {
  switch (dtype) {
    case DType::kBool:
      return Store<uint8_t>(value != 0 ? 1 : 0, data, index);
    case DType::kUInt8:
      return Store(SaturatingCast<uint8_t>(value), data, index);
    case DType::kInt8:
      return Store(SaturatingCast<int8_t>(value), data, index);
    case DType::kInt16:
      return Store(SaturatingCast<int16_t>(value), data, index);
    case DType::kUInt16:
      return Store(SaturatingCast<uint16_t>(value), data, index);
    case DType::kInt32:
      return Store(SaturatingCast<int32_t>(value), data, index);
    case DType::kUInt32:
      return Store(SaturatingCast<uint32_t>(value), data, index);
    case DType::kInt64:
      return Store(SaturatingCast<int64_t>(value), data, index);
    case DType::kUInt64:
      return Store(SaturatingCast<uint64_t>(value), data, index);
    case DType::kFloat16:
      return Store(DoubleToHalf(value), data, index);
    case DType::kBFloat16:
      return Store(DoubleToBFloat16(value), data, index);
    case DType::kFloat32:
      return Store(static_cast<float>(value), data, index);
    case DType::kFloat64:
      return Store(value, data, index);
  }
}

namespace {

// `read` gives an element as double. A template, so that the type is chosen once and not for each
// element: every candidate of a search is compared twice.
template <typename Read>
CompareResult CompareEach(const Read& read, const void* actual, const void* expected, int64_t count,
                          bool exact, const module::Tolerance& tolerance) {
  CompareResult result;
  result.count = count;
  double sum_diff = 0;
  double sum_expected = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double a = read(actual, i);
    const double e = read(expected, i);
    const bool match = exact ? Load<uint64_t>(actual, i) == Load<uint64_t>(expected, i)
                             : WithinTolerance(a, e, tolerance);
    if (!match && result.mismatches++ == 0) {
      result.first_mismatch = i;
      result.first_actual = a;
      result.first_expected = e;
    }
    if (std::isfinite(a) && std::isfinite(e)) {
      result.max_abs_diff = std::max(result.max_abs_diff, std::abs(a - e));
      result.max_abs_expected = std::max(result.max_abs_expected, std::abs(e));
      sum_diff += (a - e) * (a - e);
      sum_expected += e * e;
    }
  }
  if (sum_diff > 0) {
    result.relative_norm = sum_expected > 0 ? std::sqrt(sum_diff) / std::sqrt(sum_expected)
                                            : std::numeric_limits<double>::infinity();
  }
  return result;
}

}  // namespace

CompareResult CompareTensors(DType dtype, const void* actual, const void* expected, int64_t count,
                             const module::Tolerance& tolerance) {
  if (dtype == DType::kFloat32) {
    const auto read = [](const void* data, int64_t i) -> double { return Load<float>(data, i); };
    return CompareEach(read, actual, expected, count, false, tolerance);
  }
  const bool exact = Is64BitInt(dtype) && tolerance.abs == 0 && tolerance.rel == 0;
  const auto read = [dtype](const void* data, int64_t i) {
    return ElementAsDouble(dtype, data, i);
  };
  return CompareEach(read, actual, expected, count, exact, tolerance);
}

std::string CompareText(const CompareResult& result) {
  const std::string norms = "max |a-e| " + support::FormatDouble(result.max_abs_diff) +
                            ", |a-e|/|e| " + support::FormatDouble(result.relative_norm);
  if (result.ok()) return "all " + std::to_string(result.count) + " elements match: " + norms;
  return std::to_string(result.mismatches) + " of " + std::to_string(result.count) +
         " elements differ: first at [" + std::to_string(result.first_mismatch) +
         "]: " + support::FormatDouble(result.first_actual) + ", expected " +
         support::FormatDouble(result.first_expected) + "; " + norms;
}

}  // namespace tilewright::runtime
