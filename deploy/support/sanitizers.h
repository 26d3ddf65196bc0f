// Whether this build has a sanitizer, whose own memory and helpers need more than a sandbox allows.
#pragma once

namespace tilewright::support {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitizerBuild = true;
#else
inline constexpr bool kSanitizerBuild = false;
#endif

}  // namespace tilewright::support
