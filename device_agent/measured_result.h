// Makes the result to report from a worker's answer: statistics, validity, names of phases. Pure
// functions; thread-safe.
#pragma once

#include "tilewright/v1/agent.pb.h"
#include "tilewright/v1/common.pb.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {

// Fills all fields of a result that follow from the worker's answer. Slugs of invalid results:
// measure.baseline.drift, measure.samples.scattered, measure.device.lost, measure.run.cancelled.
v1::MeasurementResult ResultFrom(const v1::ModuleMeasured& measured,
                                 const v1::MeasurementPlan& plan);

// Refuses a result whose times are below what the device's measured peak allows: it becomes
// RUN_CRASH (class SANDBOX, "forged"). Does nothing where the operations or the peak are not known.
void RefuseImpossible(const v1::Work& work, const v1::DeviceReport& device,
                      v1::ModuleMeasured* measured);

}  // namespace tilewright::device_agent
