#include "deploy/support/measure_units.h"

#include "deploy/support/strings.h"

namespace tilewright::support {
namespace {

constexpr MeasureUnit kMeasureUnits[] = {
    {.kind = 1, .name = "wall_ns", .symbol = "ns", .time = true},
    {.kind = 2, .name = "device_ns", .symbol = "ns", .time = true},
    {.kind = 3, .name = "rtl_cycles", .symbol = "cycles", .deterministic = true},
    {.kind = 4, .name = "simulated_cycles", .symbol = "cycles", .deterministic = true},
    {.kind = 5, .name = "virtual_cycles", .symbol = "cycles", .deterministic = true},
};
constexpr char kClassSeparator = '@';

}  // namespace

std::span<const MeasureUnit> MeasureUnits() { return kMeasureUnits; }

const MeasureUnit* FindMeasureUnit(std::string_view name) {
  for (const MeasureUnit& unit : kMeasureUnits) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

const MeasureUnit* FindMeasureUnit(int kind) {
  for (const MeasureUnit& unit : kMeasureUnits) {
    if (unit.kind == kind) return &unit;
  }
  return nullptr;
}

std::string ClassOfUnit(std::string_view pool, const MeasureUnit& unit) {
  if (unit.name == kMeasureUnits[0].name) return std::string(pool);
  const std::string suffix = StrCat(std::string(1, kClassSeparator), unit.name);
  return pool.ends_with(suffix) ? std::string(pool) : StrCat(pool, suffix);
}

const MeasureUnit& UnitOfClass(std::string_view device_class) {
  const size_t at = device_class.rfind(kClassSeparator);
  const MeasureUnit* unit =
      at == std::string_view::npos ? nullptr : FindMeasureUnit(device_class.substr(at + 1));
  return unit == nullptr ? kMeasureUnits[0] : *unit;
}

}  // namespace tilewright::support
