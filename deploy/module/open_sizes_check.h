// The part of ValidateManifest (manifest.h) that is about size variables. A pure function.
#ifndef DEPLOY_MODULE_OPEN_SIZES_CHECK_H_
#define DEPLOY_MODULE_OPEN_SIZES_CHECK_H_

#include <string_view>

#include "absl/status/status.h"
#include "deploy/module/manifest.h"

namespace tilewright::module {

// INVALID_ARGUMENT `module.manifest.<reason>`: what is wrong in the place `where` of a manifest.
absl::Status BadManifest(std::string_view reason, std::string_view where, std::string_view detail);

// INVALID_ARGUMENT `module.manifest.<reason>`. REQUIRES: a manifest with size variables that
// passes all other checks.
absl::Status CheckOpenSizes(const Manifest& manifest);

}  // namespace tilewright::module

#endif  // DEPLOY_MODULE_OPEN_SIZES_CHECK_H_
