#include "device_agent/input_cache.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "deploy/runtime/input_gen.h"

namespace tilewright::device_agent {
namespace {

// Types as TensorSpec spells them.
std::optional<module::DType> DTypeOf(std::string_view text) {
  using module::DType;
  constexpr std::pair<std::string_view, DType> kNames[] = {
      {"bool", DType::kBool},   {"i8", DType::kInt8},       {"i16", DType::kInt16},
      {"i32", DType::kInt32},   {"i64", DType::kInt64},     {"u8", DType::kUInt8},
      {"u16", DType::kUInt16},  {"u32", DType::kUInt32},    {"u64", DType::kUInt64},
      {"f16", DType::kFloat16}, {"bf16", DType::kBFloat16}, {"f32", DType::kFloat32},
      {"f64", DType::kFloat64},
  };
  for (const auto& [name, dtype] : kNames) {
    if (name == text) return dtype;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<module::Distribution> DistributionOf(const v1::Distribution& from) {
  module::Distribution to;
  switch (from.kind_case()) {
    case v1::Distribution::kUniform:
      to.kind = module::Distribution::Kind::kUniform;
      to.a = from.uniform().low();
      to.b = from.uniform().high();
      return to;
    case v1::Distribution::kNormal:
      to.kind = module::Distribution::Kind::kNormal;
      to.a = from.normal().mean();
      to.b = from.normal().standard_deviation();
      return to;
    case v1::Distribution::kIntegers:
      to.kind = module::Distribution::Kind::kIntRange;
      to.a = static_cast<double>(from.integers().low());
      to.b = static_cast<double>(from.integers().high());
      return to;
    case v1::Distribution::KIND_NOT_SET:
      break;
  }
  return support::InvalidArgument("measure.inputs.distribution", "expected a law, found none");
}

std::string InputCache::Key(module::DType dtype, int64_t count,
                            const module::Distribution& distribution, uint64_t seed) {
  std::string key;
  const auto add = [&key](const auto& value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  add(dtype);
  add(count);
  add(distribution.kind);
  add(distribution.a);
  add(distribution.b);
  add(seed);
  return key;
}

// Forgets what was used longest ago, never what this call of Prepare used.
bool InputCache::MakeRoom(int64_t bytes) {
  while (bytes_ + bytes > max_bytes_) {
    const auto oldest = std::min_element(
        entries_.begin(), entries_.end(),
        [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
    if (oldest == entries_.end() || oldest->second.last_use == now_) return false;
    bytes_ -= static_cast<int64_t>(oldest->second.bytes.size());
    entries_.erase(oldest);
  }
  return true;
}

void InputCache::Prepare(const v1::InputSpec& inputs) {
  ++now_;
  for (const v1::TensorSpec& tensor : inputs.tensors()) {
    const auto dtype = DTypeOf(tensor.dtype());
    const auto distribution = DistributionOf(tensor.distribution());
    if (!dtype.has_value() || !distribution.ok()) continue;
    const int64_t most = max_bytes_ / module::DTypeBytes(*dtype);
    int64_t count = 1;
    for (const int64_t extent : tensor.shape()) {
      count = extent < 0 || (extent > 0 && count > most / extent) ? -1 : count * extent;
      if (count < 0) break;
    }
    if (count <= 0) continue;
    const std::string key = Key(*dtype, count, *distribution, tensor.seed());
    const auto known = entries_.find(key);
    if (known != entries_.end()) {
      known->second.last_use = now_;
      continue;
    }
    const int64_t bytes = count * module::DTypeBytes(*dtype);
    if (!MakeRoom(bytes)) continue;
    Entry entry;
    entry.bytes.resize(static_cast<size_t>(bytes));
    entry.last_use = now_;
    const absl::Status made =
        runtime::GenerateInput(*dtype, count, *distribution, tensor.seed(), entry.bytes.data());
    if (!made.ok()) continue;
    bytes_ += bytes;
    entries_.emplace(key, std::move(entry));
  }
}

std::string_view InputCache::Find(module::DType dtype, int64_t count,
                                  const module::Distribution& distribution, uint64_t seed) const {
  const auto it = entries_.find(Key(dtype, count, distribution, seed));
  if (it == entries_.end()) return {};
  return {it->second.bytes.data(), it->second.bytes.size()};
}

}  // namespace tilewright::device_agent
