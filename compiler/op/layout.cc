#include "compiler/op/layout.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "compiler/op/op_rows.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

constexpr int64_t kMaxBlock = int64_t{1} << 20;

char Upper(char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); }
char Lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

int64_t Product(const std::vector<int64_t>& factors) {
  int64_t product = 1;
  for (int64_t factor : factors) product *= factor;
  return product;
}

// Takes off the last digits what a block of this size counts. All digits in one where their extents
// do not make it.
ir::Expr TakeBlock(int64_t block, Place* digits) {
  int64_t extent = 1;
  size_t first = digits->size();
  while (first > 1 && (extent < block || (*digits)[first - 1].extent == 1)) {
    extent *= (*digits)[--first].extent;
  }
  if (extent == block) {
    ir::Expr taken = Join(std::span(*digits).subspan(first));
    digits->resize(first);
    return taken;
  }
  const ir::Expr whole = Join(*digits), size = ir::Int(block);
  *digits = {{ir::FloorDiv(whole, size)}};
  return ir::FloorMod(whole, size);
}

}  // namespace

ir::Expr Join(std::span<const Digit> digits) {
  if (digits.empty()) return ir::Int(0);
  ir::Expr number = digits[0].value;
  for (const Digit& digit : digits.subspan(1)) {
    number = number * ir::Int(digit.extent) + digit.value;
  }
  return number;
}

Layout::Layout(std::string_view axes) : axes_(axes) {
  for (size_t axis = 0; axis < axes.size(); ++axis) pieces_.push_back({axis, 0});
}

absl::StatusOr<Layout> Layout::Parse(std::string_view text, std::string_view axes) {
  const auto refuse = [&] {
    return OpError(
        "layout", "syntax",
        support::StrCat("expected axes of ", axes,
                        ", each once, and behind them blocks with a size, found ", text));
  };
  Layout layout(axes);
  layout.pieces_.clear();
  std::vector<bool> seen(axes.size(), false);
  int64_t block = 0;
  for (const char c : text) {
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      block = block * 10 + (c - '0');
      if (block < 1 || block > kMaxBlock) return refuse();
      continue;
    }
    const size_t axis = layout.AxisOf(Upper(c));
    // A block needs its axis in front of it.
    const bool cuts = c == Lower(c);
    if (axis == std::string::npos || cuts != (block > 0) || seen[axis] != cuts) return refuse();
    seen[axis] = true;
    layout.pieces_.push_back({axis, block});
    block = 0;
  }
  if (block > 0 || layout.pieces_.empty()) return refuse();
  return layout;
}

std::string Layout::ToText() const {
  std::string text;
  for (const Piece& piece : pieces_) {
    const char axis = axes_[piece.axis];
    if (piece.block == 0) {
      text += axis;
    } else {
      text += support::StrCat(piece.block, std::string(1, Lower(axis)));
    }
  }
  return text;
}

size_t Layout::AxisOf(char letter) const { return axes_.find(letter); }

bool Layout::Has(char axis) const { return Dimension(axis) < pieces_.size(); }

size_t Layout::Dimension(char axis) const {
  const auto it = std::find(pieces_.begin(), pieces_.end(), Piece{AxisOf(axis), 0});
  return static_cast<size_t>(it - pieces_.begin());
}

std::vector<int64_t> Layout::Blocks(char axis) const {
  std::vector<int64_t> blocks;
  for (const Piece& piece : pieces_) {
    if (piece.axis == AxisOf(axis) && piece.block > 0) blocks.push_back(piece.block);
  }
  return blocks;
}

int64_t Layout::Block(char axis) const { return Product(Blocks(axis)); }

bool Layout::is_cut() const {
  return std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& p) { return p.block > 0; });
}

Layout Layout::Transposed(std::span<const int64_t> perm) const {
  Layout transposed = *this;
  for (size_t d = 0; d < perm.size(); ++d) {
    transposed.pieces_[d] = pieces_[static_cast<size_t>(perm[d])];
  }
  return transposed;
}

std::optional<std::vector<Dim>> Layout::SizesOf(const std::vector<Dim>& stored,
                                                DimEqualities* equal) const {
  if (stored.size() != pieces_.size()) return std::nullopt;
  std::vector<Dim> sizes(axes_.size(), 1);
  for (size_t d = 0; d < stored.size(); ++d) {
    const auto [axis, block] = pieces_[d];
    if (block > 0 && !MayEqual(stored[d], block, equal)) return std::nullopt;
    sizes[axis] = sizes[axis] * (block > 0 ? Dim(block) : stored[d]);
  }
  return sizes;
}

std::vector<int64_t> Layout::Stored(const std::vector<int64_t>& sizes) const {
  std::vector<int64_t> stored;
  for (const auto& [axis, block] : pieces_) {
    const int64_t blocks = Block(axes_[axis]);
    stored.push_back(block > 0 ? block : (sizes[axis] + blocks - 1) / blocks);
  }
  return stored;
}

std::vector<ir::Expr> Layout::Index(std::span<const Place> places) const {
  std::vector<ir::Expr> index(pieces_.size());
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    Place digits = places[axis];
    std::vector<size_t> dims;  // of this axis, outermost first
    for (size_t d = 0; d < pieces_.size(); ++d) {
      if (pieces_[d].axis == axis) dims.push_back(d);
    }
    bool same = digits.size() == dims.size();  // a digit for each
    for (size_t at = 1; same && at < dims.size(); ++at) {
      same = digits[at].extent == pieces_[dims[at]].block;
    }
    for (size_t at = dims.size(); at-- > 0;) {
      const int64_t block = pieces_[dims[at]].block;
      index[dims[at]] = same         ? digits[at].value
                        : block == 0 ? Join(digits)
                                     : TakeBlock(block, &digits);
    }
  }
  return index;
}

std::vector<std::vector<int64_t>> Layout::Offsets(const std::vector<int64_t>& sizes) const {
  const std::vector<int64_t> strides = RowMajorStrides(Stored(sizes));
  std::vector<std::vector<int64_t>> offsets;
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    offsets.emplace_back(static_cast<size_t>(sizes[axis]), 0);
    int64_t inner = 1;  // steps along the axis that one of this piece is
    for (size_t d = pieces_.size(); d-- > 0;) {
      const auto [own, block] = pieces_[d];
      if (own != axis) continue;
      for (int64_t at = 0; at < sizes[axis]; ++at) {
        const int64_t digit = at / inner;
        offsets[axis][at] += (block > 0 ? digit % block : digit) * strides[d];
      }
      inner *= std::max<int64_t>(block, 1);
    }
  }
  return offsets;
}

namespace {

// Calls `copy` with the offsets of each element in both layouts.
template <typename Copy>
void ForEachElement(const Layout& from, const Layout& to, const std::vector<int64_t>& sizes,
                    const Copy& copy) {
  const auto source = from.Offsets(sizes), target = to.Offsets(sizes);
  const size_t last = sizes.size() - 1;
  const std::vector<int64_t> rows(sizes.begin(), sizes.end() - 1);
  if (Product(sizes) == 0) return;
  std::vector<int64_t> row(rows.size(), 0);
  do {
    int64_t a = 0, b = 0;
    for (size_t axis = 0; axis < last; ++axis) {
      a += source[axis][row[axis]];
      b += target[axis][row[axis]];
    }
    for (int64_t i = 0; i < sizes[last]; ++i) copy(a + source[last][i], b + target[last][i]);
  } while (NextIndex(rows, &row));
}

}  // namespace

std::string Repack(std::string_view bytes, const Layout& from, const Layout& to,
                   const std::vector<int64_t>& sizes, int64_t element) {
  std::string packed(static_cast<size_t>(Product(to.Stored(sizes)) * element), '\0');
  ForEachElement(from, to, sizes, [&](int64_t source, int64_t target) {
    std::memcpy(packed.data() + target * element, bytes.data() + source * element,
                static_cast<size_t>(element));
  });
  return packed;
}

std::vector<double> Repack(const std::vector<double>& values, const Layout& from, const Layout& to,
                           const std::vector<int64_t>& sizes) {
  if (from == to) return values;
  std::vector<double> packed(static_cast<size_t>(Product(to.Stored(sizes))), 0);
  ForEachElement(from, to, sizes,
                 [&](int64_t source, int64_t target) { packed[target] = values[source]; });
  return packed;
}

}  // namespace tilewright::op
