// The code objects of the drivers and compilers that stand in for the vendor's: a header as cubins
// have one, then the text itself. Pure functions.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace tilewright::simt {

inline constexpr size_t kElfHeaderBytes = 64;
inline constexpr char kFakeCubinMark[] = "emulated GPU";

// `arch`: 90 for sm_90.
inline std::string FakeCubin(std::string_view text, uint32_t arch) {
  std::string image(kElfHeaderBytes, '\0');
  std::memcpy(image.data(),
              "\x7f"
              "ELF\x02\x01\x01",
              7);
  image[18] = static_cast<char>(190);  // the machine of cubins
  std::memcpy(image.data() + 48, &arch, sizeof(arch));
  const uint64_t bytes = text.size();
  image += kFakeCubinMark;
  image.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  return image.append(text);
}

struct FakeCode {
  uint32_t arch = 0;
  std::string text;
};
// nullopt: another ELF file. `image` is as long as its own header says.
inline std::optional<FakeCode> ReadFakeCubin(const char* image) {
  constexpr size_t kMark = sizeof(kFakeCubinMark) - 1;
  if (std::memcmp(image + kElfHeaderBytes, kFakeCubinMark, kMark) != 0) return std::nullopt;
  FakeCode code;
  uint64_t bytes = 0;
  std::memcpy(&code.arch, image + 48, sizeof(code.arch));
  std::memcpy(&bytes, image + kElfHeaderBytes + kMark, sizeof(bytes));
  code.text.assign(image + kElfHeaderBytes + kMark + sizeof(bytes), bytes);
  return code;
}

}  // namespace tilewright::simt
