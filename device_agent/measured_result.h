// Makes the result to report from a worker's answer: statistics, validity, names of phases. Pure
// functions; thread-safe.
#pragma once

#include "tilewright/v1/common.pb.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {

// Fills all fields of a result that follow from the worker's answer. Slugs of invalid results:
// measure.baseline.drift, measure.samples.scattered, measure.device.lost, measure.run.cancelled.
v1::MeasurementResult ResultFrom(const v1::ModuleMeasured& measured,
                                 const v1::MeasurementPlan& plan);

}  // namespace tilewright::device_agent
