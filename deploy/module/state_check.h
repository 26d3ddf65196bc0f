// The part of ValidateManifest (manifest.h) that is about state. A pure function.
#ifndef DEPLOY_MODULE_STATE_CHECK_H_
#define DEPLOY_MODULE_STATE_CHECK_H_

#include "absl/status/status.h"
#include "deploy/module/manifest.h"

namespace tilewright::module {

// INVALID_ARGUMENT `module.manifest.state`, also for tensors of kind kState in a manifest without
// state. REQUIRES: a manifest that passes all other checks but those of open sizes.
absl::Status CheckState(const Manifest& manifest);

}  // namespace tilewright::module

#endif  // DEPLOY_MODULE_STATE_CHECK_H_
