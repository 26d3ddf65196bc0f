// Runs of strided stores: a register tile whose vectors lie across the rows of its output (channels
// in vectors, pixels in memory) is transposed in registers and stored row by row, instead of lane
// by lane.
//   Y[c + ramp(0, S, L)] = v0; Y[c + 1 + ramp(0, S, L)] = v1; …
//     →  Y[c + S·l + ramp(0, 1, P)] = <v0[l], v1[l], …>
// Bytes, which come in fours (operands of dot products), fill their rows: one vector is all of it.
//   Y[c + k + ramp(0, 4, L)] = vk, k in 0..4
//     →  Y[c + ramp(0, 1, 4L)] = <v0[0], v1[0], v2[0], …>
// So do pairs under a mask, such as the last columns of a transposed convolution of stride 2:
//   Y[c + k + ramp(0, 2, L)] = vk masked m, k in 0..2
//     →  Y[c + ramp(0, 1, 2L)] = <v0[0], v1[0], v0[1], …> masked <m[0], m[0], m[1], …>
#include <algorithm>
#include <numeric>
#include <optional>

#include "compiler/codegen/llvm_emitter.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"

namespace tilewright::codegen {

using ir::Expr;
using ir::Stmt;
using ir::StmtKind;
using llvm::Value;

namespace {

constexpr int kRow = 4;  // the longest row of a transposed tile
// Of an open stride, what lies so far apart makes no run.
constexpr int64_t kSpan = 64;

bool LoadsFrom(const Expr& e, const ir::Buffer& buffer) {
  bool found = false;
  ir::VisitExprs(e, [&](const Expr& part) {
    found = found || (part->kind == ir::ExprKind::kLoad && part->buffer == buffer);
    return !found;
  });
  return found;
}

// Shuffles within 128-bit groups, which cost one instruction each.
std::vector<int> PairMask(int lanes, std::initializer_list<int> picks) {
  std::vector<int> mask;
  for (int group = 0; group < lanes; group += 4) {
    for (int pick : picks) mask.push_back(pick < 4 ? group + pick : lanes + group + pick - 4);
  }
  return mask;
}

}  // namespace

std::optional<FunctionEmitter::RunStore> FunctionEmitter::AsRunStore(const Stmt& s) {
  bool plain = s->kind == StmtKind::kStore && s->value->dtype.is_vector();
  if (!plain || s->value->dtype.is_bool() || s->value->dtype.lanes % 4 != 0) return std::nullopt;
  const int bytes = s->value->dtype.bytes();
  if (bytes != 4 && bytes != 1) return std::nullopt;
  if (BindingOf(s->buffer).plan != nullptr || LoadsFrom(s->value, s->buffer)) return std::nullopt;
  const int lanes = s->value->dtype.lanes;
  if (s->mask != nullptr && (bytes != 4 || table_.IsVolatile(s->mask))) return std::nullopt;
  if (const auto open = AsOpenRamp(s->indices[0]); open && bytes == 4) {
    if (s->mask != nullptr) return std::nullopt;
    if (table_.IsVolatile(open->base) || table_.IsVolatile(open->stride)) return std::nullopt;
    return RunStore{&s, table_.Decompose(open->base), 0, table_.Number(open->stride), lanes};
  }
  RampForm ramp;
  if (!AsRampForm(s->indices[0], &ramp) || ramp.stride < 2) return std::nullopt;
  if (bytes == 1 && ramp.stride != kRow) return std::nullopt;
  if (s->mask != nullptr && ramp.stride != 2) return std::nullopt;
  if (table_.IsVolatile(ramp.base)) return std::nullopt;
  return RunStore{&s, table_.Decompose(ramp.base), ramp.stride, 0, lanes};
}

namespace {

bool SameTerms(const LinearIndex& a, const LinearIndex& b) {
  return std::equal(
      a.terms.begin(), a.terms.end(), b.terms.begin(), b.terms.end(),
      [](const auto& x, const auto& y) { return x.id == y.id && x.coefficient == y.coefficient; });
}

}  // namespace

bool FunctionEmitter::SameMask(const RunStore& a, const RunStore& b) {
  const Expr &x = (*a.stmt)->mask, &y = (*b.stmt)->mask;
  if (x == nullptr || y == nullptr) return x == y;
  return table_.Number(x) == table_.Number(y);
}

// How many statements from `first` on form a run: same buffer and terms, no element written twice
// (with an open stride: within a row).
size_t FunctionEmitter::RunLength(const std::vector<Stmt>& stmts, size_t first,
                                  std::vector<RunStore>* run) {
  for (size_t i = first; i < stmts.size(); ++i) {
    std::optional<RunStore> next = AsRunStore(stmts[i]);
    if (!next.has_value()) break;
    if (!run->empty()) {
      const RunStore& head = run->front();
      bool alike = (*next->stmt)->buffer == (*head.stmt)->buffer && next->stride == head.stride &&
                   next->open_stride == head.open_stride && next->lanes == head.lanes &&
                   SameTerms(next->index, head.index);
      for (const RunStore& other : *run) {
        int64_t apart = std::abs(next->index.constant - other.index.constant);
        if (head.stride == 0) alike = alike && apart > 0 && apart < kSpan;
        if (head.stride > 0) {
          alike = alike && (apart % head.stride != 0 || apart / head.stride >= head.lanes);
        }
      }
      if (!alike) break;
    }
    run->push_back(std::move(*next));
  }
  return run->size();
}

// Rows of an open stride may be shorter than the run.
absl::Status FunctionEmitter::EmitStoreRun(const std::vector<RunStore>& run) {
  const auto open = AsOpenRamp((*run[0].stmt)->indices[0]);
  if (!open) return EmitChains(run);
  const auto [first, last] =
      std::ranges::minmax(run, {}, [](const RunStore& store) { return store.index.constant; });
  const int64_t span = last.index.constant - first.index.constant;
  TW_ASSIGN(Value * apart, Emit(ir::Int(span, open->stride->dtype) < open->stride));
  return EmitBranches(
             apart,
             [&]() -> absl::StatusOr<Value*> {
               TW_TRY(EmitChains(run));
               return builder_.getTrue();
             },
             [&]() -> absl::StatusOr<Value*> {
               for (const RunStore& store : run) TW_TRY(EmitStore(*store.stmt));
               return builder_.getTrue();
             })
      .status();
}

absl::Status FunctionEmitter::EmitChains(std::vector<RunStore> run) {
  std::stable_sort(run.begin(), run.end(), [](const RunStore& a, const RunStore& b) {
    return a.index.constant < b.index.constant;
  });
  std::vector<RunStore> alone;
  for (size_t i = 0; i < run.size();) {
    size_t chain = 1;
    while (i + chain < run.size() && chain < kRow &&
           run[i + chain].index.constant == run[i].index.constant + static_cast<int64_t>(chain) &&
           SameMask(run[i + chain], run[i])) {
      ++chain;
    }
    const bool bytes = (*run[i].stmt)->value->dtype.bytes() == 1;
    if (bytes && chain < kRow) chain = 1;
    if (chain == 3) chain = 2;
    const bool masked = (*run[i].stmt)->mask != nullptr;
    if (masked) chain = std::min<size_t>(chain, 2);
    if (chain == 1 && run[i].stride == 0) {
      alone.push_back(run[i]);
    } else if (chain == 1) {
      TW_TRY(EmitStore(*run[i].stmt));
    } else if (masked) {
      TW_TRY(StoreMaskedPair(run[i], run[i + 1]));
    } else if (bytes) {
      TW_TRY(StoreInterleaved({run.begin() + i, run.begin() + i + chain}));
    } else {
      TW_TRY(StoreTransposed({run.begin() + i, run.begin() + i + chain}));
    }
    i += chain;
  }
  return alone.empty() ? absl::OkStatus() : StoreByLanes(alone);
}

// Of an open stride, lane by lane: all that one lane stores is a constant away from its pointer.
absl::Status FunctionEmitter::StoreByLanes(const std::vector<RunStore>& run) {
  std::vector<Value*> values;
  for (const RunStore& store : run) {
    TW_ASSIGN(Value * value, Emit((*store.stmt)->value));
    values.push_back(ToMemory(value, (*store.stmt)->value->dtype));
  }
  const Stmt& head = *run[0].stmt;
  const auto open = AsOpenRamp(head->indices[0]);
  TW_CHECK(open.has_value()) << "codegen: a run without a ramp";
  Access access{&head->buffer, &BindingOf(head->buffer), head->indices[0], nullptr,
                head->value->dtype};
  for (int lane = 0; lane < run[0].lanes; ++lane) {
    for (size_t i = 0; i < run.size(); ++i) {
      TW_ASSIGN(const Address address,
                EmitAddress(access, open->At(lane), run[i].index.constant - run[0].index.constant));
      builder_.CreateAlignedStore(builder_.CreateExtractElement(values[i], lane), address.pointer,
                                  address.align);
    }
  }
  return absl::OkStatus();
}

// The values of a chain one after the other: one load where they lie so in memory.
absl::StatusOr<Value*> FunctionEmitter::EmitJoined(const std::vector<RunStore>& chain) {
  const int lanes = chain[0].lanes, width = static_cast<int>(chain.size());
  std::optional<LinearIndex> first;
  bool adjacent = true;
  for (int i = 0; i < width && adjacent; ++i) {
    const Expr& value = (*chain[i].stmt)->value;
    RampForm ramp;
    adjacent = value->kind == ir::ExprKind::kLoad && value->mask == nullptr &&
               value->buffer == (*chain[0].stmt)->value->buffer &&
               BindingOf(value->buffer).plan == nullptr && AsRampForm(value->args[0], &ramp) &&
               ramp.stride == 1;
    if (!adjacent) break;
    const LinearIndex at = table_.Decompose(ramp.base);
    if (!first.has_value()) first = at;
    adjacent = SameTerms(at, *first) && at.constant == first->constant + i * lanes;
  }
  if (adjacent) {
    const Expr& head = (*chain[0].stmt)->value;
    RampForm ramp;
    TW_CHECK(AsRampForm(head->args[0], &ramp)) << "codegen: a load without a ramp";
    return Emit(ir::Load(head->buffer, {ir::Ramp(ramp.base, ir::Int(1), width * lanes)}));
  }
  std::vector<Value*> v;
  for (const RunStore& store : chain) {
    TW_ASSIGN(Value * value, Emit((*store.stmt)->value));
    v.push_back(value);
  }
  std::vector<int> in_order(static_cast<size_t>(width * lanes));
  std::iota(in_order.begin(), in_order.end(), 0);
  // Twice as long each time.
  for (int length = 2 * lanes; v.size() > 1; length *= 2) {
    for (size_t i = 0; i < v.size() / 2; ++i) {
      v[i] = builder_.CreateShuffleVector(v[2 * i], v[2 * i + 1],
                                          llvm::ArrayRef(in_order).take_front(length));
    }
    v.resize(v.size() / 2);
  }
  return v[0];
}

absl::Status FunctionEmitter::StoreInterleaved(const std::vector<RunStore>& chain) {
  const Stmt& head = *chain[0].stmt;
  const int lanes = chain[0].lanes, width = static_cast<int>(chain.size());
  TW_ASSIGN(Value * joined, EmitJoined(chain));
  std::vector<int> interleaved;
  for (int lane = 0; lane < lanes; ++lane) {
    for (int at = 0; at < width; ++at) interleaved.push_back(at * lanes + lane);
  }
  RampForm ramp;
  TW_CHECK(AsRampForm(head->indices[0], &ramp)) << "codegen: a run without a ramp";
  Access access{&head->buffer, &BindingOf(head->buffer), head->indices[0], nullptr,
                head->value->dtype};
  TW_ASSIGN(Address address, EmitAddress(access, ramp.base, 0));
  // As words: LLVM takes stores of interleaved bytes apart into a dozen unpacks, where one
  // permutation does.
  Value* words = builder_.CreateBitCast(
      builder_.CreateShuffleVector(joined, interleaved),
      llvm::FixedVectorType::get(builder_.getInt32Ty(), static_cast<unsigned>(lanes)));
  builder_.CreateAlignedStore(words, address.pointer, address.align);
  return absl::OkStatus();
}

absl::Status FunctionEmitter::StoreMaskedPair(const RunStore& even, const RunStore& odd) {
  const Stmt& head = *even.stmt;
  TW_ASSIGN(Value * first, Emit(head->value));
  TW_ASSIGN(Value * second, Emit((*odd.stmt)->value));
  TW_ASSIGN(Value * mask, EmitMask(head->mask));
  first = ToMemory(first, head->value->dtype);
  second = ToMemory(second, head->value->dtype);
  RampForm ramp;
  TW_CHECK(AsRampForm(head->indices[0], &ramp)) << "codegen: a run without a ramp";
  Access access{&head->buffer, &BindingOf(head->buffer), head->indices[0], nullptr,
                head->value->dtype};
  for (int half = 0; half < 2; ++half) {
    std::vector<int> values, lanes;
    for (int i = half * even.lanes; i < (half + 1) * even.lanes; ++i) {
      lanes.push_back(i / 2);
      values.push_back(i % 2 * even.lanes + i / 2);
    }
    TW_ASSIGN(Address address, EmitAddress(access, ramp.base, half * even.lanes));
    MaskedStore(builder_.CreateShuffleVector(first, second, values), address,
                PickMask(lanes, mask));
  }
  return absl::OkStatus();
}

absl::Status FunctionEmitter::StoreTransposed(const std::vector<RunStore>& chain) {
  const Stmt& head = *chain[0].stmt;
  int lanes = chain[0].lanes, width = static_cast<int>(chain.size());
  std::vector<Value*> v;
  for (const RunStore& store : chain) {
    TW_ASSIGN(Value * value, Emit((*store.stmt)->value));
    v.push_back(value);
  }
  auto shuffle = [&](Value* a, Value* b, std::initializer_list<int> picks) {
    return builder_.CreateShuffleVector(a, b, PairMask(lanes, picks));
  };
  // Each of `rows` holds, for every 128-bit group, one row of four lanes or two rows of two.
  std::vector<Value*> rows;
  if (width == 2) {
    rows = {shuffle(v[0], v[1], {0, 4, 1, 5}), shuffle(v[0], v[1], {2, 6, 3, 7})};
  } else {
    Value *a = shuffle(v[0], v[1], {0, 4, 1, 5}), *b = shuffle(v[0], v[1], {2, 6, 3, 7});
    Value *c = shuffle(v[2], v[3], {0, 4, 1, 5}), *d = shuffle(v[2], v[3], {2, 6, 3, 7});
    rows = {shuffle(a, c, {0, 1, 4, 5}), shuffle(a, c, {2, 3, 6, 7}), shuffle(b, d, {0, 1, 4, 5}),
            shuffle(b, d, {2, 3, 6, 7})};
  }
  RampForm ramp;
  const auto open = AsOpenRamp(head->indices[0]);
  TW_CHECK(open || AsRampForm(head->indices[0], &ramp)) << "codegen: a run without a ramp";
  Access access{&head->buffer, &BindingOf(head->buffer), head->indices[0], nullptr,
                head->value->dtype};
  int per_value = lanes / width;  // rows in one of `rows`
  for (int row = 0; row < lanes; ++row) {
    int group = row / 4, in_group = row % 4;
    int value = width == 4 ? in_group : in_group / 2;
    int first = group * 4 + (width == 4 ? 0 : (in_group % 2) * 2);
    std::vector<int> pick;
    for (int lane = 0; lane < width; ++lane) pick.push_back(first + lane);
    Value* part = per_value == 1 ? rows[value] : builder_.CreateShuffleVector(rows[value], pick);
    TW_ASSIGN(Address address, open ? EmitAddress(access, open->At(row), 0)
                                    : EmitAddress(access, ramp.base, row * ramp.stride));
    builder_.CreateAlignedStore(part, address.pointer, address.align);
  }
  return absl::OkStatus();
}

}  // namespace tilewright::codegen
