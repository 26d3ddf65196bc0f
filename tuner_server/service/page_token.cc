#include "tuner_server/service/page_token.h"

#include <algorithm>

#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::service {
namespace {

constexpr int64_t kDefaultSize = 50;
constexpr int64_t kMaxSize = 1000;
constexpr size_t kCheckDigits = 16;

std::string Check(std::string_view list, std::string_view position) {
  return support::Hex64(support::Hasher64().Add(list).Add(position).Finish());
}

}  // namespace

std::string PageToken(std::string_view list, int64_t position) {
  const std::string text = support::Hex64(static_cast<uint64_t>(position));
  return Check(list, text) + text;
}

absl::StatusOr<PageRequest> ReadPage(const v1::Page& page, std::string_view list) {
  PageRequest request;
  if (page.page_size() < 0) {
    return support::InvalidArgument("page.size.invalid",
                                    support::StrCat("expected 0..1000, found ", page.page_size()));
  }
  request.size =
      page.page_size() == 0 ? kDefaultSize : std::min<int64_t>(page.page_size(), kMaxSize);
  const std::string& token = page.page_token();
  if (token.empty()) return request;
  const std::string position = token.size() > kCheckDigits ? token.substr(kCheckDigits) : "";
  const auto bytes = support::HexDecode(position);
  if (!bytes || bytes->size() != sizeof(int64_t) || Check(list, position) + position != token) {
    return support::InvalidArgument(
        "page.token.invalid", "expected a token of this list, found " + support::Quote(token, 80));
  }
  for (const char byte : *bytes) {
    request.position = static_cast<int64_t>((static_cast<uint64_t>(request.position) << 8) |
                                            static_cast<uint8_t>(byte));
  }
  // The check keeps mistakes out, not those who compute it.
  if (request.position < 0) {
    return support::InvalidArgument("page.token.invalid", "expected a place within the list");
  }
  return request;
}

}  // namespace tilewright::service
