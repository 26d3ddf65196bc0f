// Places of one buffer that a loop adds to, and copies of them. Internal to compiler/transform.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/visit.h"

namespace tilewright::transform {

struct LoopSums {
  ir::Buffer buffer;             // of one dimension
  std::vector<ir::Expr> places;  // indices: an integer, or a ramp of stride 1

  std::optional<size_t> Find(const ir::Expr& index) const;
  // Whether no two of them certainly or possibly share an element.
  bool AreApart() const;
  // A local buffer that holds them, one behind the other.
  ir::Buffer MakeCopy(std::string name) const;
  // Where the copy holds `places[i]`.
  ir::Expr InCopy(size_t i) const;
};

// An integer, or elements side by side: what `LoopSums::places` may hold.
bool IsPlace(const ir::Expr& index);

// Loads and stores of the places become those of the copy.
class UseCopy : public ir::Rewriter {
 public:
  UseCopy(const LoopSums& sums, ir::Buffer copy) : sums_(sums), copy_(std::move(copy)) {}
  ir::Expr RewriteExpr(const ir::Expr& e) override;
  ir::Stmt RewriteStmt(const ir::Stmt& s) override;

 private:
  const LoopSums& sums_;
  const ir::Buffer copy_;
};

}  // namespace tilewright::transform
