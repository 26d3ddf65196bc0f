// Page tokens of lists: opaque to clients, bound to the list that gave them. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "deploy/support/status.h"
#include "tilewright/v1/common.pb.h"

namespace tilewright::service {

struct PageRequest {
  int64_t size = 0;      // rows wanted
  int64_t position = 0;  // where the list continues; 0: at its beginning
};

// `list` names the list and its filters. invalid_argument: page.token.invalid for a changed token
// or one of another list, page.size.invalid for a negative size.
absl::StatusOr<PageRequest> ReadPage(const v1::Page& page, std::string_view list);

std::string PageToken(std::string_view list, int64_t position);

}  // namespace tilewright::service
