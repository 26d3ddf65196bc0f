#include "compiler/ir/interp_expr.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/numeric.h"
#include "compiler/ir/type_rules.h"

namespace tilewright::ir {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 28;  // of one buffer: 2.3 GB of cells

std::string PointText(const std::vector<int64_t>& point) {
  std::string text = "[";
  for (size_t i = 0; i < point.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(point[i]);
  return text + "]";
}

bool InBox(const ConcreteRegion& r, const std::vector<int64_t>& point) {
  if (r.min.size() != point.size()) return false;
  for (size_t d = 0; d < point.size(); ++d) {
    if (point[d] < r.min[d] || static_cast<__int128>(point[d]) - r.min[d] >= r.extent[d])
      return false;
  }
  return true;
}

}  // namespace

void ExprMachine::Fail(std::string slug, std::string detail) {
  if (failed()) return;  // the first error is the one that matters
  slug_ = "ir.interp." + std::move(slug);
  detail_ = std::move(detail);
}

int ExprMachine::DeclareVar(const Var& var) {
  auto [it, fresh] = slots_.try_emplace(var.get(), static_cast<int>(vars_.size()));
  if (fresh) vars_.push_back({});
  return it->second;
}

BufferState* ExprMachine::DeclareBuffer(const Buffer& buffer) {
  auto& state = buffers_[buffer.get()];
  if (state == nullptr) state = std::make_unique<BufferState>();
  state->buffer = buffer;
  return state.get();
}

BufferState* ExprMachine::Find(const Buffer& buffer) {
  auto it = buffers_.find(buffer.get());
  if (it != buffers_.end()) return it->second.get();
  Fail("undeclared", "expected an allocated buffer, found " + buffer->name);
  return nullptr;
}

Code ExprMachine::Resolve(const Expr& e) {
  Code code;
  code.kind = e->kind;
  code.dtype = e->dtype;
  code.intrinsic = e->intrinsic;
  std::string error = TypeErrorOf(*e);
  if (!error.empty()) Fail("type", error);
  if (e->kind == ExprKind::kVar) {
    auto it = slots_.find(e.get());
    if (it == slots_.end()) Fail("undeclared", "expected a bound variable, found " + e->name);
    code.slot = it == slots_.end() ? DeclareVar(e) : it->second;
  }
  if (e->kind == ExprKind::kIntImm) code.constant.i = e->int_value;
  if (e->kind == ExprKind::kFloatImm) code.constant.d = e->float_value;
  if (e->kind == ExprKind::kLoad) code.buffer = Find(e->buffer);
  for (const Expr& a : e->args) code.args.push_back(Resolve(a));
  if (e->mask != nullptr) code.mask = std::make_unique<Code>(Resolve(e->mask));
  if (!e->args.empty()) code.operand = e->args[0]->dtype;
  return code;
}

bool ExprMachine::Allocate(BufferState* state, const std::vector<Code>& shape) {
  state->shape.clear();
  int64_t elements = 1;
  for (const Code& extent : shape) {
    int64_t n = EvalInt(extent);
    if (n < 0 || __builtin_mul_overflow(elements, n, &elements) || elements > kMaxElements) {
      Fail("size", "buffer " + state->buffer->name + ": expected at most " +
                       std::to_string(kMaxElements) + " elements, found an extent of " +
                       std::to_string(n));
      return false;
    }
    state->shape.push_back(n);
  }
  state->cells.assign(elements, Cell{});
  state->written.assign(elements, kUnwritten);
  state->touches.clear();
  return true;
}

void ExprMachine::Touched(BufferState* state, int64_t position, bool is_write) {
  if (lane_ < 0 || position < 0 || StorageRankOf(state->buffer->scope) == StorageRank::kThread)
    return;
  if (state->touches.empty()) state->touches.resize(state->cells.size());
  Touch& t = state->touches[position];
  if (t.epoch != epoch_) t = {.epoch = epoch_};
  bool other_wrote = t.writer >= 0 && t.writer != lane_;
  bool other_read = t.many_readers || (t.reader >= 0 && t.reader != lane_);
  if (other_wrote || (is_write && other_read)) {
    Fail("race", state->buffer->name + ": thread " + std::to_string(lane_) +
                     (is_write ? " writes" : " reads") + " element " + std::to_string(position) +
                     ", which thread " + std::to_string(other_wrote ? t.writer : t.reader) +
                     (other_wrote ? " wrote" : " read") + " since the last barrier");
  }
  if (is_write) {
    t.writer = lane_;
  } else {
    t.many_readers |= other_read;
    t.reader = lane_;
  }
}

void ExprMachine::Issue(BufferState* state, int64_t position, Cell value) {
  if (position < 0) return;
  if (state->written[position] == kInFlight) {
    Fail("in_flight", "store to element " + std::to_string(position) + " of " +
                          state->buffer->name + " while another is in flight");
  }
  state->written[position] = kInFlight;
  queue_->open.push_back({state, position, value});
}

void ExprMachine::Commit() {
  queue_->groups.push_back(std::move(queue_->open));
  queue_->open.clear();
}

void ExprMachine::Wait(int64_t pending) {
  auto& groups = queue_->groups;
  size_t landing = groups.size() - std::min(groups.size(), static_cast<size_t>(pending));
  for (size_t i = 0; i < landing; ++i) {
    for (const PendingStore& p : groups[i]) {
      p.buffer->cells[p.position] = p.value;
      p.buffer->written[p.position] = kWritten;
    }
  }
  groups.erase(groups.begin(), groups.begin() + static_cast<int64_t>(landing));
}

void ExprMachine::CheckLanded(const BufferState* state) {
  auto check = [&](const std::vector<PendingStore>& stores) {
    for (const PendingStore& p : stores) {
      if (state != nullptr && p.buffer != state) continue;
      return Fail("in_flight", "expected that all stores to " + p.buffer->buffer->name +
                                   " have landed, found one in flight at its end");
    }
  };
  check(queue_->open);
  for (const auto& group : queue_->groups) check(group);
}

void ExprMachine::CheckReadable(const BufferState& state, int64_t position) {
  uint8_t flag = state.written[position];
  if (flag == kInFlight) {
    Fail("in_flight", "read of " + state.buffer->name + " at element " + std::to_string(position) +
                          " while a store to it is in flight");
  } else if (check_uninitialised && flag == kUnwritten) {
    Fail("uninitialised", "read of " + state.buffer->name + " at element " +
                              std::to_string(position) + " before any write");
  }
}

void ExprMachine::CheckRegions(const std::vector<const std::vector<ConcreteRegion>*>& stack,
                               const BufferState& state, const std::vector<int64_t>& point,
                               bool is_write) {
  for (const std::vector<ConcreteRegion>* regions : stack) {
    bool covered = std::any_of(regions->begin(), regions->end(), [&](const ConcreteRegion& r) {
      return r.buffer == &state && InBox(r, point);
    });
    if (covered) continue;
    Fail("region", std::string("block ") + (is_write ? "writes " : "reads ") + state.buffer->name +
                       PointText(point) + " outside its declared regions");
  }
}

int64_t ExprMachine::Locate(const BufferState& state, const std::vector<std::vector<Cell>>& indices,
                            int lane) {
  auto at = [&](size_t d) { return indices[d].size() == 1 ? indices[d][0].i : indices[d][lane].i; };
  auto outside = [&] {
    std::vector<int64_t> point;
    for (size_t d = 0; d < indices.size(); ++d) point.push_back(at(d));
    Fail("out_of_bounds",
         state.buffer->name + PointText(point) + " of shape " + PointText(state.shape));
    return int64_t{-1};
  };
  if (indices.size() == 1 && state.shape.size() != 1) {  // flat
    int64_t i = at(0);
    return i < 0 || i >= static_cast<int64_t>(state.cells.size()) ? outside() : i;
  }
  int64_t position = 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    int64_t i = at(d);
    if (i < 0 || i >= state.shape[d]) return outside();
    position = position * state.shape[d] + i;
  }
  return position;
}

int64_t ExprMachine::LocateScalar(const BufferState& state, const std::vector<Code>& indices) {
  int64_t position = 0;
  bool flat = indices.size() == 1 && state.shape.size() != 1;
  for (size_t d = 0; d < indices.size(); ++d) {
    int64_t i = EvalInt(indices[d]),
            extent = flat ? static_cast<int64_t>(state.cells.size()) : state.shape[d];
    if (i < 0 || i >= extent) {
      std::vector<int64_t> point;
      for (const Code& index : indices) point.push_back(EvalInt(index));
      Fail("out_of_bounds",
           state.buffer->name + PointText(point) + " of shape " + PointText(state.shape));
      return -1;
    }
    position = position * extent + i;
  }
  return position;
}

Cell ExprMachine::EvalLoadLane(const Code& code, int64_t position) {
  if (position < 0) return {};
  const BufferState& state = *code.buffer;
  if (state.written[position] != kWritten) CheckReadable(state, position);
  if (lane_ >= 0) Touched(code.buffer, position, /*is_write=*/false);
  if (!read_regions.empty()) {
    std::vector<int64_t> point(state.shape.size());
    for (size_t d = point.size(), rest = position; d-- > 0; rest /= state.shape[d])
      point[d] = rest % state.shape[d];
    CheckRegions(read_regions, state, point, /*is_write=*/false);
  }
  return state.cells[position];
}

Cell ExprMachine::EvalBinaryLane(const Code& code, Cell a, Cell b) {
  Cell r{};
  if (!code.operand.is_float()) {
    if (!EvalIntBinary(code.kind, code.operand, a.i, b.i, &r.i)) {
      Fail("division_by_zero", std::to_string(a.i) + " " + std::string(KindText(code.kind)) + " 0");
    }
    return r;
  }
  if (EvalFloatArith(code.kind, code.operand, a.d, b.d, &r.d)) return r;
  bool c = false;
  EvalFloatCompare(code.kind, a.d, b.d, &c);
  r.i = c;
  return r;
}

Cell ExprMachine::EvalCastLane(const Code& code, Cell a) {
  Cell r{};
  DType from = code.operand, to = code.dtype;
  if (from.is_float() && to.is_float()) {
    r.d = RoundFloat(a.d, to);
  } else if (from.is_float()) {
    r.i = CastFloatToInt(a.d, to);
  } else if (to.is_float()) {
    r.d = CastIntToFloat(a.i, from, to);
  } else {
    r.i = CastIntToInt(a.i, to);
  }
  return r;
}

Cell ExprMachine::EvalScalar(const Code& code) {
  switch (code.kind) {
    case ExprKind::kVar:
      return vars_[code.slot];
    case ExprKind::kIntImm:
    case ExprKind::kFloatImm:
      return code.constant;
    case ExprKind::kCast:
      return EvalCastLane(code, EvalScalar(code.args[0]));
    case ExprKind::kNot:
      return {.i = EvalScalar(code.args[0]).i == 0};
    case ExprKind::kSelect:
      return EvalScalar(code.args[EvalBool(code.args[0]) ? 1 : 2]);
    case ExprKind::kLoad:
      if (code.buffer == nullptr || (code.mask != nullptr && !EvalBool(*code.mask))) return {};
      return EvalLoadLane(code, LocateScalar(*code.buffer, code.args));
    case ExprKind::kCall: {
      if (code.intrinsic == Intrinsic::kPrefetch) return {};  // never faults
      Cell a = EvalScalar(code.args[0]);
      if (!code.dtype.is_float()) {
        const int64_t count = code.args.size() > 1 ? EvalScalar(code.args[1]).i : 0;
        return {.i = EvalIntIntrinsic(code.intrinsic, code.dtype, a.i, count)};
      }
      double b = code.args.size() > 1 ? EvalScalar(code.args[1]).d : 0;
      double c = code.args.size() > 2 ? EvalScalar(code.args[2]).d : 0;
      return {.d = EvalFloatIntrinsic(code.intrinsic, code.dtype, a.d, b, c)};
    }
    default:
      break;
  }
  Cell a = EvalScalar(code.args[0]), b = EvalScalar(code.args[1]);
  return EvalBinaryLane(code, a, b);
}

void ExprMachine::EvalLoadVector(const Code& code, Cell* out) {
  int lanes = code.dtype.lanes;
  std::fill(out, out + lanes, Cell{});
  if (code.buffer == nullptr) return;
  std::vector<Cell> mask(lanes, Cell{.i = 1});
  if (code.mask != nullptr) EvalVector(*code.mask, mask.data());
  std::vector<std::vector<Cell>> indices;
  for (const Code& index : code.args) {
    indices.emplace_back(index.dtype.lanes);
    EvalVector(index, indices.back().data());
  }
  for (int lane = 0; lane < lanes; ++lane) {
    if (mask[lane].i != 0) out[lane] = EvalLoadLane(code, Locate(*code.buffer, indices, lane));
  }
}

void ExprMachine::EvalDot4(const Code& code, Cell* out) {
  int lanes = code.dtype.lanes;
  std::vector<Cell> a(code.args[1].dtype.lanes), b(code.args[2].dtype.lanes);
  EvalVector(code.args[0], out);
  EvalVector(code.args[1], a.data());
  EvalVector(code.args[2], b.data());
  if (code.dtype.is_float()) {
    for (size_t at = 0; at < b.size(); ++at) {
      Cell& sum = out[at / 2];
      sum.d = RoundFloat(sum.d + a[a.size() == 2 ? at % 2 : at].d * b[at].d, kF32);
    }
    return;
  }
  const bool words = code.args[2].dtype.bits == 32;
  for (int lane = 0; lane < lanes; ++lane) {
    int64_t sum = out[lane].i;
    for (size_t i = 0; i < 4; ++i) {
      size_t at = 4 * static_cast<size_t>(lane) + i;
      const int64_t factor = words ? b[static_cast<size_t>(lane)].i >> (8 * i) & 0xff : b[at].i;
      sum += a[a.size() == 4 ? i : at].i * factor;
    }
    out[lane].i = WrapInt(sum, code.dtype.Element());
  }
}

void ExprMachine::EvalDotTile(const Code& code, Cell* out) {
  std::vector<Cell> args[4];
  EvalVector(code.args[0], out);
  for (size_t i = 0; i < 4; ++i) {
    args[i].resize(code.args[i + 1].dtype.lanes);
    EvalVector(code.args[i + 1], args[i].data());
  }
  for (size_t lane = 0; lane < static_cast<size_t>(code.dtype.lanes); ++lane) {
    const std::vector<Cell>& row = args[lane / 2 % 2];
    const size_t column = lane / 4 * 2 + lane % 2;
    int64_t sum = out[lane].i;
    for (size_t k = 0; k < 8; ++k) sum += row[k].i * args[2 + k / 4][4 * column + k % 4].i;
    out[lane].i = WrapInt(sum, code.dtype.Element());
  }
}

void ExprMachine::EvalVector(const Code& code, Cell* out) {
  int lanes = code.dtype.lanes;
  if (lanes == 1) {
    *out = EvalScalar(code);
    return;
  }
  if (code.kind == ExprKind::kVar) return Fail("type", "vector variable");
  if (code.kind == ExprKind::kLoad) return EvalLoadVector(code, out);
  if (code.kind == ExprKind::kRamp || code.kind == ExprKind::kBroadcast) {
    Cell base = EvalScalar(code.args[0]);
    int64_t stride = code.kind == ExprKind::kRamp ? EvalInt(code.args[1]) : 0;
    for (int lane = 0; lane < lanes; ++lane) {
      out[lane] = base;
      if (code.kind == ExprKind::kBroadcast) continue;
      uint64_t value = static_cast<uint64_t>(base.i) +
                       static_cast<uint64_t>(stride) * static_cast<uint64_t>(lane);
      out[lane].i = WrapInt(static_cast<int64_t>(value), code.operand);
    }
    return;
  }
  if (code.kind == ExprKind::kSelect && code.args[0].dtype.lanes == 1) {
    return EvalVector(code.args[EvalBool(code.args[0]) ? 1 : 2], out);
  }
  if (code.intrinsic == Intrinsic::kPrefetch) return std::fill(out, out + lanes, Cell{});
  if (code.intrinsic == Intrinsic::kDot4 || code.intrinsic == Intrinsic::kDotTile) {
    if (failed()) return;
    return code.intrinsic == Intrinsic::kDot4 ? EvalDot4(code, out) : EvalDotTile(code, out);
  }
  std::vector<std::vector<Cell>> args;
  for (const Code& a : code.args) {
    args.emplace_back(lanes);
    EvalVector(a, args.back().data());
  }
  // Lane by lane, as a scalar node over constants.
  Code lane_code;
  lane_code.kind = code.kind;
  lane_code.dtype = code.dtype.Element();
  lane_code.operand = code.operand.Element();
  lane_code.intrinsic = code.intrinsic;
  lane_code.args.resize(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    lane_code.args[i].dtype = code.args[i].dtype.Element();
    lane_code.args[i].kind =
        lane_code.args[i].dtype.is_float() ? ExprKind::kFloatImm : ExprKind::kIntImm;
  }
  for (int lane = 0; lane < lanes; ++lane) {
    for (size_t i = 0; i < args.size(); ++i) lane_code.args[i].constant = args[i][lane];
    out[lane] = EvalScalar(lane_code);
  }
}

}  // namespace tilewright::ir
