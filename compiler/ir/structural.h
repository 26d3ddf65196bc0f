// Structural equality and hash of the tensor IR, up to renaming of variables, intermediate buffers
// and blocks (parameter order counts, names do not). Equal functions have equal hashes; the hash is
// stable over runs and machines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"

namespace tilewright::ir {

bool StructuralEqual(const Function& a, const Function& b);
bool StructuralEqual(const Expr& a,
                     const Expr& b);  // free variables and buffers by address; both null is equal
// As many, each equal to the one in its place.
bool StructuralEqual(const std::vector<Expr>& a, const std::vector<Expr>& b);
bool StructuralEqual(const Stmt& a,
                     const Stmt& b);  // likewise; variables bound inside up to renaming
uint64_t StructuralHash(const Function& f);
std::string ProgramHash(
    const Function& f);  // 16 hex digits of StructuralHash: the log's program_hash

}  // namespace tilewright::ir
