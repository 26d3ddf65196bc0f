// Copies of tiles as C text that a unit next to the threads does, and the maps of their buffers.
#include <array>
#include <optional>

#include "compiler/codegen/c_emitter.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/visit.h"
#include "deploy/support/strings.h"

namespace tilewright::codegen {
namespace {

using ir::Expr;
using ir::Stmt;
using support::StrCat;

// The tile begins at an element of each buffer; its rows are next to each other in shared memory,
// and `row` elements apart in global memory.
struct TileCopy {
  ir::Buffer to, from;
  Expr to_first, from_first;
  int64_t rows, columns, row;
};
std::optional<TileCopy> TileCopyOf(const Stmt& s) {
  if (!ir::IsBulkCopy(s)) return std::nullopt;
  const ir::StmtNode& store = *s->body->body;
  const std::array<ir::Var, 2> loops = {s->var, s->body->var};
  const int64_t *rows = ir::AsInt(s->range.extent), *columns = ir::AsInt(s->body->range.extent);
  const bool from_zero = ir::IsInt(s->range.min, 0) && ir::IsInt(s->body->range.min, 0);
  const auto to = ir::CoefficientsOf(store.indices[0], loops);
  const auto from = ir::CoefficientsOf(store.value->args[0], loops);
  if (!from_zero || rows == nullptr || columns == nullptr || !to || !from || (*to)[0] != *columns ||
      (*to)[1] != 1 || (*from)[0] < *columns || (*from)[1] != 1) {
    return std::nullopt;
  }
  const ir::VarMap first = {{loops[0].get(), ir::Int(0, loops[0]->dtype)},
                            {loops[1].get(), ir::Int(0, loops[1]->dtype)}};
  return TileCopy{store.buffer,
                  store.value->buffer,
                  ir::Substitute(store.indices[0], first),
                  ir::Substitute(store.value->args[0], first),
                  *rows,
                  *columns,
                  (*from)[0]};
}

// Rows of a buffer; 0 where that is not known, or no whole number.
int64_t RowsOf(const ir::BufferNode& buffer, int64_t row) {
  return ElementsOf(buffer) % row == 0 ? ElementsOf(buffer) / row : 0;
}

}  // namespace

// Returns the name of the map; there is one for each buffer and size of a tile.
std::string CEmitter::MapOf(const ir::Buffer& buffer, int64_t row, int64_t box_rows) {
  const std::vector<int64_t> numbers = {buffer_numbers_.at(buffer.get()), row, RowsOf(*buffer, row),
                                        dialect_.fragments.shared.columns, box_rows};
  for (const BulkMap& map : bulk_maps_) {
    if (map.numbers == numbers) return map.name;
  }
  bulk_maps_.push_back({expr_.Temporary(StrCat(buffer->name, "_map")), numbers});
  return bulk_maps_.back().name;
}

// False: the loops are no such copy here; as statements they do the same at once, which is allowed.
bool CEmitter::EmitBulkCopy(const Stmt& s) {
  const BulkCopyWords& words = dialect_.bulk;
  if (!in_async_ || words.copy.empty()) return false;
  const std::optional<TileCopy> copy = TileCopyOf(s);
  if (!copy || !buffer_numbers_.contains(copy->from.get())) return false;
  const auto placed = fragments_.placed.find(copy->to.get());
  if (placed == fragments_.placed.end()) return false;
  const SharedFactorWords& factors = dialect_.fragments.shared;
  const int64_t row = copy->row, bytes = copy->from->dtype.bytes();
  const bool fits = placed->second.row == copy->columns && copy->columns % factors.columns == 0 &&
                    copy->rows <= words.most_rows && bytes == words.bytes &&
                    row * bytes % words.align == 0 && RowsOf(*copy->from, row) > 0;
  const bool in_place = expr_.IsAtStart(copy->to_first, 1, factors.rows * copy->columns) &&
                        expr_.IsAtStart(copy->from_first, row - copy->columns + 1, row);
  if (!fits || !in_place) return false;
  const auto number = [&](const Expr& e) { return expr_.Lane(e, 0); };
  const Expr& from = copy->from_first;
  const Expr of_row = ir::Int(row, from->dtype);
  Line(StrCat(words.copy, "(", copy->columns / factors.columns, ", ", copy->rows, ", ",
              placed->second.rows, ", (", expr_.NameOf(copy->to.get()), " + ",
              expr_.PlaceOf(copy->to.get(), number(copy->to_first)), "), ",
              MapOf(copy->from, row, copy->rows), ", ", number(ir::FloorMod(from, of_row)), ", ",
              number(ir::FloorDiv(from, of_row)), ");"));
  return true;
}

bool CEmitter::HasBulkCopies(const Stmt& body) const {
  bool found = false;
  ir::VisitStmts(body, [&](const Stmt& s) {
    found = found || (!dialect_.bulk.copy.empty() && ir::IsBulkCopy(s));
    return !found;
  });
  return found;
}

// What the body turned out to need, from the last place of the text to the first.
void CEmitter::AddBulkCopies(const std::string& kernel, const KernelPlaces& places) {
  if (bulk_maps_.empty()) return;
  uses_bulk_ = true;
  const BulkCopyWords& words = dialect_.bulk;
  const std::string& array = expr_.NameOf(bulk_words_.get());
  out_.insert(places.body, StrCat("  ", Replaced(std::string(words.begin), "@", array), "\n"));
  std::string parameters;
  std::vector<std::string> numbers;
  for (const BulkMap& map : bulk_maps_) {
    parameters += StrCat(", ", Replaced(std::string(words.parameter), "@", map.name));
    for (const int64_t n : map.numbers) numbers.push_back(std::to_string(n));
  }
  out_.insert(places.parameters, parameters);
  const std::string count = std::to_string(numbers.size());
  const std::string line = Replaced(Replaced(std::string(words.maps), "@", kernel), "#", count);
  out_.insert(places.begin, Replaced(line, "%", support::Join(numbers, ", ")) + "\n");
}

}  // namespace tilewright::codegen
