// Writes module files (module_file.h). Reproducible: the same parts give the same bytes. Pure
// functions but for the file; thread-safe.
#ifndef DEPLOY_MODULE_MODULE_WRITER_H_
#define DEPLOY_MODULE_MODULE_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "deploy/module/manifest.h"

namespace tilewright::module {

// The parts of a module. The writer sets the sizes and digests of `manifest.code` and of the
// constants. The caller sets a format in `manifest.code` for each code object.
struct ModuleParts {
  Manifest manifest;
  std::vector<std::string> code;
  absl::Cord constants;  // may refer to weights of others, which are hundreds of megabytes
};

// Returns the file's bytes. INVALID_ARGUMENT if the manifest is invalid or contradicts the parts.
absl::StatusOr<std::string> SerializeModule(const ModuleParts& parts);

struct WrittenModule {
  std::string sha256;  // of the file, 64 hexadecimal digits
  uint64_t bytes = 0;
};
// Writes the same bytes, without a copy of them, and atomically: after an error, the file at `path`
// has not changed.
absl::StatusOr<WrittenModule> WriteModule(const std::string& path, const ModuleParts& parts);

}  // namespace tilewright::module

#endif  // DEPLOY_MODULE_MODULE_WRITER_H_
