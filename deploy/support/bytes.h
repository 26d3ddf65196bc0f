// The memory of values as bytes. Pure; thread-safe.
#ifndef DEPLOY_SUPPORT_BYTES_H_
#define DEPLOY_SUPPORT_BYTES_H_

#include <string>
#include <type_traits>
#include <vector>

namespace tilewright::support {

// In the machine's byte order, without gaps.
template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  static_assert(std::is_arithmetic_v<T>);
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace tilewright::support

#endif  // DEPLOY_SUPPORT_BYTES_H_
