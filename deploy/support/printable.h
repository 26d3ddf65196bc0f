// Text of others (names, reasons, messages) as a person may see it: a terminal shows each character
// and obeys none. Pure functions; safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "deploy/support/status.h"

namespace tilewright::support {

enum class LineBreaks { kEscape, kKeep };  // kKeep: line feeds and tabs stay

// Returns the text with each character that a terminal would obey, hide or reorder as \uXXXX:
// control characters (also of Unicode), marks of direction, separators of lines, characters without
// width. Bytes that are no UTF-8 become \xXX. In JSON text, the result has the same meaning.
std::string Printable(std::string_view text, LineBreaks breaks = LineBreaks::kEscape);

// invalid_argument (`slug`) if Printable would change the text; `what` names it in the message.
absl::Status CheckPrintable(std::string_view text, std::string_view slug, std::string_view what);

// Whether the text is UTF-8, as strings of protobuf messages must be.
bool IsUtf8(std::string_view text);

}  // namespace tilewright::support
