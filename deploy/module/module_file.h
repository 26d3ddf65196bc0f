// The module file `model.tw`: one file with a header, a section table, and the sections manifest,
// code objects and constants. Little-endian. Every byte is covered: sections by SHA-256 in the
// table, the table by a SHA-256 in the header, padding by being zero; a changed byte anywhere is
// found when the module is read.
//
//   offset 0    header, 64 bytes: magic "TWMODULE", u32 version, u32 section count, u64 file size,
//               32 bytes SHA-256 of the table, 8 zero bytes
//   offset 64   table, 64 bytes per section: u32 kind, u32 index, u64 offset, u64 size,
//               32 bytes SHA-256 of the contents, 8 zero bytes
//   then        the sections in table order (manifest, code 0…n-1, constants), manifest aligned to
//               64 bytes, the others to 4096 so that they can be mapped; zero padding between
//
// The writer is reproducible: the same parts give the same bytes. A ModuleFile owns its mapping or
// its bytes; moving it keeps the views valid. Const use is thread-safe.
#ifndef DEPLOY_MODULE_MODULE_FILE_H_
#define DEPLOY_MODULE_MODULE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/module/manifest.h"

namespace tilewright::module {

inline constexpr uint32_t kModuleFileVersion = 1;
inline constexpr std::string_view kModuleFileExtension = ".tw";

// What a module is made of. The writer fills the sizes and digests of `manifest.code` (their
// formats must be set, one per code object) and of the constants.
struct ModuleParts {
  Manifest manifest;
  std::vector<std::string> code;
  std::string constants;
};

// The file's bytes. INVALID_ARGUMENT when the manifest is invalid or disagrees with the parts.
absl::StatusOr<std::string> SerializeModule(const ModuleParts& parts);

// Serializes and writes atomically: after an error nothing at `path` has changed.
absl::Status WriteModule(const std::string& path, const ModuleParts& parts);

struct ReadOptions {
  // Check the constants' digest and the zero padding when reading. Without it only the bounds of
  // the constants are checked and VerifyConstants() can be called later (a large model on a small
  // machine starts faster).
  bool verify_constants = true;
};

class ModuleFile {
 public:
  // Maps the file and checks it. NOT_FOUND for a missing file; DATA_LOSS `module.file.<reason>`
  // for anything that is not an intact module; UNIMPLEMENTED for a later version.
  static absl::StatusOr<ModuleFile> Open(const std::string& path, const ReadOptions& options = {});
  // The same from memory; copies the bytes once, to where they are aligned.
  static absl::StatusOr<ModuleFile> FromBytes(std::string_view bytes,
                                              const ReadOptions& options = {});

  ModuleFile(ModuleFile&&) noexcept;
  ModuleFile& operator=(ModuleFile&&) noexcept;
  ~ModuleFile();

  const Manifest& manifest() const;
  // Canonical JSON of the manifest as stored.
  std::string_view manifest_json() const;
  size_t num_code() const;
  std::string_view code(size_t index) const;
  // Starts at a 64-byte boundary at least; empty when there are none.
  std::string_view constants() const;
  // The whole file; its SHA-256 is the module's digest in the module store.
  std::string_view bytes() const;

  absl::Status VerifyConstants() const;

 private:
  struct Impl;
  explicit ModuleFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::module

#endif  // DEPLOY_MODULE_MODULE_FILE_H_
