// The smallest module file that readers accept, without code that runs: for tests of what stores,
// moves and names modules. Stateless.
#pragma once

#include <string>
#include <string_view>

namespace tilewright::tests {

// A model.tw whose code bytes are `text` and whose only launch belongs to the task "task-of-" +
// text. The same text gives the same bytes.
std::string TinyModule(std::string_view text);

}  // namespace tilewright::tests
