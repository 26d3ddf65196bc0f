// Sizes of a model as the contracts carry them: jobs, module versions and the requests of a builder
// have the same five fields. Pure functions; thread-safe.
#pragma once

#include "tilewright/v1/builder.pb.h"
#include "tilewright/v1/job.pb.h"
#include "tilewright/v1/sizes.pb.h"
#include "tuner_server/log/model_sizes.h"

namespace tilewright::jobs {

log::ModelSizes SizesOf(const v1::Job& job);
log::ModelSizes SizesOf(const v1::ModelSizes& sizes);

// Fill the five fields, which must be empty.
void PutSizes(const log::ModelSizes& sizes, v1::Job* job);
void PutSizes(const log::ModelSizes& sizes, v1::OpenJob* open);
void PutSizes(const log::ModelSizes& sizes, v1::ModelSizes* message);

}  // namespace tilewright::jobs
