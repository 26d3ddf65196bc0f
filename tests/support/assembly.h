// The instructions that a function becomes.
#pragma once

#include <string>

#include "compiler/ir/ir.h"
#include "compiler/target/target.h"

namespace tilewright::tests {

// Assembly of a scheduled function, lowered and generated for a processor that need not be this
// one. Ends the test if that fails.
std::string AssemblyOf(const ir::Function& f, const target::Target& target);

}  // namespace tilewright::tests
