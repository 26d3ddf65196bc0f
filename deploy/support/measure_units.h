// The units of measurements: one table. A device says what it measures; statistics, limits and
// comparisons follow the row of its unit. Pure functions; thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tilewright::support {

struct MeasureUnit {
  int kind = 0;                // number of the tilewright.v1.ValueKind
  std::string_view name;       // its text form, as in logs
  std::string_view symbol;     // for people
  bool time = false;           // nanoseconds of a clock; otherwise a counter, which no clock bounds
  bool deterministic = false;  // equal runs give equal values: one sample says all
};

// The first row is that of devices that say nothing: wall_ns.
std::span<const MeasureUnit> MeasureUnits();
// Returns null if there is no such unit.
const MeasureUnit* FindMeasureUnit(std::string_view name);
const MeasureUnit* FindMeasureUnit(int kind);

// Returns the device class of devices of `pool` that measure in `unit`: "POOL@UNIT", or the pool
// alone for wall_ns. Everything that compares measurements compares those of one class only, so
// that two units never meet.
std::string ClassOfUnit(std::string_view pool, const MeasureUnit& unit);
// Returns the unit of a class; that of the first row if the class names none, or one that this
// version does not know.
const MeasureUnit& UnitOfClass(std::string_view device_class);

}  // namespace tilewright::support
