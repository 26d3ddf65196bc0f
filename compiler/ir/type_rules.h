// The type rules of the tensor IR in one place: the factories (which abort), the parser and the
// verifier (which report) all ask these functions. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/ir.h"

namespace tilewright::ir {

bool IsBinary(ExprKind kind);              // Add .. Or
bool IsComparison(ExprKind kind);          // Eq .. Ge
std::string_view KindText(ExprKind kind);  // the word or operator of nodes.def
std::string_view IntrinsicText(Intrinsic intrinsic);
int IntrinsicArity(Intrinsic intrinsic);
// Lane-wise steps of integers that machines do in an instruction or a few: of bits, shifts,
// products.
bool IsIntegerStep(Intrinsic intrinsic);
bool IsMathCall(const ExprNode& e);  // a call of any other intrinsic
// The type of a call by that of its first argument.
DType CallType(Intrinsic intrinsic, DType first);

// Lanes of an access with these indices: the lanes of its vector indices, 1 when all are scalar.
int LanesOf(const std::vector<Expr>& indices);

// Empty when the node (its own type included) is well typed given well-typed children; else what
// was expected and found.
std::string TypeErrorOf(const ExprNode& node);
std::string StoreErrorOf(const StmtNode& store);
std::string CombineErrorOf(const StmtNode& combine);

}  // namespace tilewright::ir
