// The module file `model.tw`: one file with a header, a section table, and the sections manifest,
// code objects and constants. Little-endian. Readers find a changed byte anywhere: the table has
// the SHA-256 of each section, the header has the SHA-256 of the table, and all padding must be
// zero.
//
//   offset 0    header, 64 bytes: magic "TWMODULE", u32 version, u32 section count, u64 file size,
//               32 bytes SHA-256 of the table, 8 zero bytes
//   offset 64   table, 64 bytes per section: u32 kind, u32 index, u64 offset, u64 size,
//               32 bytes SHA-256 of the contents, 8 zero bytes
//   then        the sections in table order (manifest, code 0…n-1, constants), manifest aligned to
//               64 bytes, the others to 4096 so that they can be mapped; zero padding between
//
// The writer is module_writer.h. A ModuleFile owns its mapping or
// its bytes. The views stay valid when it is moved. Const use is thread-safe.
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

struct ReadOptions {
  // Whether the reader checks the digest of the constants and the zero padding. Without it, the
  // reader checks only the bounds of the constants, and a large model starts faster on a small
  // machine. VerifyConstants() can do the rest later.
  bool verify_constants = true;
};

class ModuleFile {
 public:
  // Maps the file and checks it. NOT_FOUND if it is missing, DATA_LOSS `module.file.<reason>` if
  // it is not an intact module, UNIMPLEMENTED if it has a later version.
  static absl::StatusOr<ModuleFile> Open(const std::string& path, const ReadOptions& options = {});
  // The same from memory. Copies the bytes once, into aligned memory.
  static absl::StatusOr<ModuleFile> FromBytes(std::string_view bytes,
                                              const ReadOptions& options = {});

  ModuleFile(ModuleFile&&) noexcept;
  ModuleFile& operator=(ModuleFile&&) noexcept;
  ~ModuleFile();

  const Manifest& manifest() const;
  // Returns the canonical JSON of the manifest as stored.
  std::string_view manifest_json() const;
  size_t num_code() const;
  std::string_view code(size_t index) const;
  // Begins at a 64-byte boundary or better; empty if there are no constants.
  std::string_view constants() const;
  // Returns the whole file. Its SHA-256 is the module's digest in the module store.
  std::string_view bytes() const;

  absl::Status VerifyConstants() const;  // DATA_LOSS if they are damaged

 private:
  struct Impl;
  explicit ModuleFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::module

#endif  // DEPLOY_MODULE_MODULE_FILE_H_
