#include "compiler/codegen/fragments.h"

#include <utility>

#include "compiler/ir/visit.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::codegen {
namespace {

using ir::Stmt;
using ir::StmtKind;
using support::StrCat;

absl::Status Disagree(const ir::BufferNode& buffer, std::string_view found) {
  return support::FailedPrecondition(
      "codegen.fragments.layout",
      StrCat("expected that ", buffer.name, " is whole fragments, the same for all uses, found ",
             found));
}

}  // namespace

int64_t ElementsOf(const ir::BufferNode& buffer) {
  int64_t elements = 1;
  for (const ir::Expr& e : buffer.shape) {
    const int64_t* n = ir::AsInt(e);
    elements *= n == nullptr ? 0 : *n;
  }
  return elements;
}

std::optional<int64_t> FragmentLayout::NumberOf(const ir::Expr& base) const {
  const int64_t* first = ir::AsInt(base);
  const size_t dense = strides[1] == 1 ? 1 : 0;  // the buffer's last dimension
  const int64_t pitch = strides[1 - dense], height = extents[1 - dense], width = extents[dense];
  if (first == nullptr || strides[dense] != 1 || pitch < width || pitch % width != 0)
    return std::nullopt;
  const int64_t row = *first / pitch, column = *first % pitch;
  if (row % height != 0 || column % width != 0) return std::nullopt;
  return row / height * (pitch / width) + column / width;
}

FragmentLayout LayoutOf(const ir::TensorMatch& match, size_t operand, size_t rows, size_t columns) {
  const ir::TensorOperandMatch& m = match.operands[operand];
  FragmentLayout layout{.extents = {match.extents[rows], match.extents[columns]},
                        .strides = {m.strides[rows], m.strides[columns]}};
  layout.count = ElementsOf(*m.buffer) / (layout.extents[0] * layout.extents[1]);
  return layout;
}

std::optional<int64_t> RowOf(const ir::TensorOperandMatch& operand, size_t rows, size_t columns) {
  const int64_t a = operand.strides[rows], b = operand.strides[columns];
  if (a != 1 && b != 1) return std::nullopt;
  return a == 1 ? b : a;
}

absl::StatusOr<KernelFragments> FindFragments(const ir::Function& kernel) {
  KernelFragments found;
  absl::Status status = absl::OkStatus();
  const auto add = [&](const ir::TensorMatch& match, size_t operand, size_t rows, size_t columns) {
    const ir::BufferNode& buffer = *match.operands[operand].buffer;
    if (!ir::IsFragmentScope(buffer.scope)) {
      const int64_t row = RowOf(match.operands[operand], rows, columns).value_or(0);
      const SharedFactor factor{row, row == 0 ? 0 : ElementsOf(buffer) / row};
      const bool same = found.placed.emplace(&buffer, factor).first->second.row == row;
      if (row == 0 || !same)
        status.Update(Disagree(buffer, "rows that are apart, or of two sizes"));
      return;
    }
    const FragmentLayout layout = LayoutOf(match, operand, rows, columns);
    const auto [seen, is_new] = found.layouts.emplace(&buffer, layout);
    if (!is_new && seen->second != layout) status.Update(Disagree(buffer, "two layouts"));
    if (layout.count * layout.extents[0] * layout.extents[1] != ElementsOf(buffer))
      status.Update(Disagree(buffer, StrCat(ElementsOf(buffer), " elements")));
  };
  ir::VisitStmts(kernel.body, [&](const Stmt& s) {
    const std::string_view name = ir::TensorNameOf(*s);
    if (name.empty()) return true;
    const auto match = ir::MatchTensor(s, name);
    status.Update(match.status());
    if (!match.ok() || match->intrinsic->op != ir::TensorOp::kMma || match->reset) return false;
    if (found.threads != 0 && found.threads != match->intrinsic->threads)
      status.Update(Disagree(*match->operands[0].buffer, "products of other threads"));
    found.threads = match->intrinsic->threads;
    add(*match, 0, 0, 1);  // the loops of a product: rows, columns, terms
    add(*match, 1, 0, 2);
    add(*match, 2, 2, 1);
    return false;
  });
  TW_TRY(status);
  return found;
}

bool HasOnlyFragments(const Stmt& s) {
  bool only = true;
  ir::VisitStmts(s, [&](const Stmt& part) {
    if (!ir::TensorNameOf(*part).empty() || ir::IsFragmentMap(part)) return false;
    only = only && part->kind != StmtKind::kStore && part->kind != StmtKind::kSync;
    return only;
  });
  return only;
}

}  // namespace tilewright::codegen
