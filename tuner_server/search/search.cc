#include "tuner_server/search/search.h"

namespace tilewright::search {

std::string_view OriginText(Origin origin) {
  switch (origin) {
    case Origin::kDraft:
      return "draft";
    case Origin::kMutation:
      return "mutation";
    case Origin::kCrossover:
      return "crossover";
    case Origin::kRandom:
      return "random";
    case Origin::kTransfer:
      return "transfer";
  }
  return "draft";
}

}  // namespace tilewright::search
