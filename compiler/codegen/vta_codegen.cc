#include "compiler/codegen/vta_codegen.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "compiler/codegen/vta_tokens.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/text_words.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::codegen {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;
using ir::TensorMatch;
using ir::TensorOp;
using ir::TensorOperandMatch;
using support::StrCat;
using vta::Memory;

constexpr int64_t kLanes = vta::kBlock;
constexpr int64_t kWeights = kLanes * kLanes;
constexpr int64_t kParamAlignment = 256;  // the largest element
constexpr int kDramSpace = -1;
constexpr int64_t kMaxInstructions = 1 << 16;

int64_t ElementsPerUnit(Memory memory) { return memory == Memory::kWgt ? kWeights : kLanes; }

// Where a buffer lives: at an element of a memory, or at a byte of the image.
struct Place {
  bool in_dram = false;
  Memory memory = Memory::kAcc;
  int64_t offset = 0;  // bytes of DRAM, or units of the memory
};

// One loop around an operation, with the step that it makes in each operand (in units).
struct LoopStep {
  int64_t extent = 1;
  std::array<int64_t, 3> step = {};
};

class Emitter {
 public:
  explicit Emitter(const ir::Function& f) : function_(f) {}

  absl::StatusOr<VtaProgram> Run();

 private:
  // Constant expressions over the loops that are being written out.
  absl::StatusOr<int64_t> Value(const Expr& e);
  absl::Status Bad(std::string_view reason, std::string detail, const Stmt& s) {
    return support::InvalidArgument(StrCat("codegen.vta.", reason),
                                    StrCat(detail, " in:\n", ir::Print(s)));
  }

  absl::Status Walk(const Stmt& s);
  absl::Status WalkFor(const Stmt& s);
  absl::Status WalkAlloc(const Stmt& s);
  absl::Status WalkLive(const Stmt& alloc);
  bool CanShare(const Buffer& s, const Buffer& d, const Stmt& body) const;
  absl::Status PlaceParams();
  absl::Status Add(const vta::Instruction& instruction, std::vector<VtaRegion> regions,
                   const Stmt& s);

  // Operands in units of their memories.
  absl::StatusOr<int64_t> UnitOf(const TensorOperandMatch& operand, const Stmt& s);
  absl::Status EmitNest(const std::vector<Stmt>& loops, const Stmt& nest);
  absl::StatusOr<bool> StepsOf(const std::vector<Stmt>& loops, const TensorMatch& match,
                               const Stmt& nest, std::vector<LoopStep>* steps,
                               std::array<int64_t, 3>* base);
  absl::Status EmitGemm(const TensorMatch& match, const std::vector<LoopStep>& steps,
                        const std::array<int64_t, 3>& base, const Stmt& nest);
  absl::Status EmitAlu(const TensorMatch& match, const std::vector<LoopStep>& steps,
                       std::array<int64_t, 3> base, const Stmt& nest);
  absl::Status EmitTransfer(const TensorMatch& match, const Stmt& nest);
  // An instruction with micro-ops over `steps`; operand k moves by step[k] and starts at base[k].
  absl::Status AddLoops(vta::Instruction instruction, const std::vector<LoopStep>& steps,
                        const std::array<int64_t, 3>& base, std::vector<VtaRegion> regions,
                        const Stmt& s);
  int64_t UopsAt(const std::vector<vta::MicroOp>& wanted);

  const ir::Function& function_;
  VtaProgram program_;
  std::vector<VtaEvent> events_;
  std::unordered_map<const ir::ExprNode*, int64_t> values_;
  std::unordered_map<const ir::BufferNode*, Place> places_;
  std::array<int64_t, 8> used_ = {};  // of each memory, in units
  std::vector<Buffer> live_;          // allocated around the statement, outermost first
  std::vector<TensorMatch> nests_;    // of the whole function
};

absl::StatusOr<int64_t> Emitter::Value(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kIntImm:
      return e->int_value;
    case ExprKind::kVar:
      if (auto it = values_.find(e.get()); it != values_.end()) return it->second;
      break;
    case ExprKind::kCast: {
      if (!e->args[0]->dtype.is_int() || !e->dtype.is_int()) break;
      TW_ASSIGN(int64_t value, Value(e->args[0]));
      return ir::WrapInt(value, e->dtype);
    }
    case ExprKind::kNot: {
      TW_ASSIGN(int64_t value, Value(e->args[0]));
      return value == 0 ? 1 : 0;
    }
    case ExprKind::kSelect: {
      TW_ASSIGN(int64_t condition, Value(e->args[0]));
      return Value(e->args[condition != 0 ? 1 : 2]);
    }
    default: {
      if (e->args.size() != 2 || e->args[0]->dtype.is_float()) break;
      TW_ASSIGN(int64_t a, Value(e->args[0]));
      TW_ASSIGN(int64_t b, Value(e->args[1]));
      int64_t result = 0;
      if (ir::EvalIntBinary(e->kind, e->args[0]->dtype, a, b, &result)) return result;
      break;
    }
  }
  return support::InvalidArgument(
      "codegen.vta.extent",
      StrCat("expected an expression over the loops around it, found ", ir::Print(e)));
}

absl::Status Emitter::Add(const vta::Instruction& instruction, std::vector<VtaRegion> regions,
                          const Stmt& s) {
  if (events_.size() >= static_cast<size_t>(kMaxInstructions)) {
    return Bad("extent", StrCat("expected at most ", kMaxInstructions, " instructions, found more"),
               s);
  }
  events_.push_back({instruction, std::move(regions)});
  return absl::OkStatus();
}

// --------------------------------------------------------------------------------------- memories

absl::Status Emitter::PlaceParams() {
  int64_t at = 0;
  for (const Buffer& b : function_.params) {
    int64_t bytes = b->dtype.bytes();
    for (const Expr& extent : b->shape) {
      TW_ASSIGN(int64_t n, Value(extent));
      bytes *= n;
    }
    program_.params.push_back({b->name, at, bytes});
    places_[b.get()] = {.in_dram = true, .offset = at};
    at += (bytes + kParamAlignment - 1) / kParamAlignment * kParamAlignment;
  }
  program_.uop_offset = at;
  return absl::OkStatus();
}

std::optional<Memory> MemoryOf(const Buffer& buffer) {
  std::string_view scope = ir::ScopeText(buffer->scope);
  for (const vta::MemoryInfo& m : vta::Memories()) {
    if (scope == StrCat("vta.", m.text)) return m.memory;
  }
  return std::nullopt;
}

// A nest's operands where it is a marked one.
std::vector<TensorMatch> MarkedNests(const Stmt& s) {
  std::vector<TensorMatch> nests;
  ir::VisitStmts(s, [&](const Stmt& part) {
    std::string_view name = ir::TensorNameOf(*part);
    if (name.empty()) return true;
    auto match = ir::MatchTensor(part, name);
    if (match.ok()) nests.push_back(*std::move(match));
    return false;
  });
  return nests;
}

// Whether D may take over the storage of S: D = f(S) lane by lane in one place, nothing else reads
// S or writes D, and in `body` (where both live) all that touches S comes before all else that
// touches D.
bool Emitter::CanShare(const Buffer& s, const Buffer& d, const Stmt& body) const {
  bool alike = s->shape.size() == d->shape.size();
  for (size_t i = 0; alike && i < d->shape.size(); ++i) {
    alike = ir::StructuralEqual(s->shape[i], d->shape[i]);
  }
  if (!alike) return false;
  int writers = 0;
  for (const TensorMatch& m : nests_) {
    bool writes_d = m.operands[0].buffer == d;
    if (writes_d) {
      ++writers;
      if (m.intrinsic->op != TensorOp::kVtaAlu || m.operands[1].buffer != s ||
          !ir::StructuralEqual(m.operands[0].base, m.operands[1].base)) {
        return false;
      }
    }
    for (size_t k = 1; k < m.operands.size(); ++k) {
      if (m.operands[k].buffer == s && !(writes_d && k == 1)) {
        bool accumulates = m.operands[0].buffer == s;
        if (!accumulates) return false;
      }
    }
  }
  std::vector<Stmt> parts = body->kind == StmtKind::kSeq ? body->stmts : std::vector<Stmt>{body};
  int last_source = -1, first_use = static_cast<int>(parts.size());
  for (int p = 0; p < static_cast<int>(parts.size()); ++p) {
    for (const TensorMatch& m : MarkedNests(parts[static_cast<size_t>(p)])) {
      bool writes_d = m.operands[0].buffer == d;
      writers -= writes_d ? 1 : 0;
      for (const TensorOperandMatch& operand : m.operands) {
        if (operand.buffer == s) last_source = p;
        if (operand.buffer == d && !writes_d) first_use = std::min(first_use, p);
      }
    }
  }
  return writers == 0 && last_source >= 0 && last_source < first_use;
}

absl::Status Emitter::WalkAlloc(const Stmt& s) {
  const Buffer& buffer = s->buffer;
  std::optional<Memory> memory = MemoryOf(buffer);
  if (!memory.has_value()) {
    return Bad("memory",
               StrCat("expected a buffer in a scope of the accelerator, found ", buffer->name,
                      " in ", ir::ScopeText(buffer->scope)),
               s);
  }
  int64_t elements = 1;
  for (const Expr& extent : buffer->shape) {
    TW_ASSIGN(int64_t n, Value(extent));
    elements *= n;
  }
  const int64_t per_unit = ElementsPerUnit(*memory);
  const int64_t units = (elements + per_unit - 1) / per_unit;
  Stmt body = s->body;
  while (body->kind == StmtKind::kAlloc) body = body->body;
  for (const Buffer& other : live_) {
    if (MemoryOf(other) != memory) continue;
    if (!CanShare(buffer, other, body) && !CanShare(other, buffer, body)) continue;
    places_[buffer.get()] = places_[other.get()];
    return WalkLive(s);
  }
  int64_t& used = used_[static_cast<size_t>(*memory)];
  const int64_t capacity = vta::InfoOf(*memory).elements;
  if (used + units > capacity) {
    return Bad("memory",
               StrCat("expected ", capacity, " elements of ", vta::InfoOf(*memory).text,
                      " at most, found ", used + units, " with ", buffer->name),
               ir::MakeAlloc(buffer, ir::MakeSeq({})));
  }
  places_[buffer.get()] = {.memory = *memory, .offset = used};
  used += units;
  TW_TRY(WalkLive(s));
  used -= units;
  return absl::OkStatus();
}

absl::Status Emitter::WalkLive(const Stmt& alloc) {
  live_.push_back(alloc->buffer);
  TW_TRY(Walk(alloc->body));
  live_.pop_back();
  places_.erase(alloc->buffer.get());
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------- statements

absl::Status Emitter::Walk(const Stmt& s) {
  switch (s->kind) {
    case StmtKind::kFor:
      return WalkFor(s);
    case StmtKind::kSeq:
      for (const Stmt& child : s->stmts) TW_TRY(Walk(child));
      return absl::OkStatus();
    case StmtKind::kAlloc:
      return WalkAlloc(s);
    case StmtKind::kIf: {
      TW_ASSIGN(int64_t condition, Value(s->condition));
      if (condition != 0) return Walk(s->body);
      return s->else_body == nullptr ? absl::OkStatus() : Walk(s->else_body);
    }
    case StmtKind::kLet: {
      TW_ASSIGN(int64_t value, Value(s->value));
      values_[s->var.get()] = value;
      return Walk(s->body);
    }
    default:
      return Bad("form", "expected tensor intrinsics of the accelerator, found another statement",
                 s);
  }
}

absl::Status Emitter::WalkFor(const Stmt& s) {
  std::vector<Stmt> loops;
  Stmt at = s;
  while (at->kind == StmtKind::kFor && ir::TensorNameOf(*at).empty()) {
    loops.push_back(at);
    at = at->body;
  }
  if (at->kind == StmtKind::kFor) return EmitNest(loops, at);
  TW_ASSIGN(int64_t min, Value(s->range.min));
  TW_ASSIGN(int64_t extent, Value(s->range.extent));
  for (int64_t i = 0; i < extent; ++i) {
    values_[s->var.get()] = min + i;
    TW_TRY(Walk(s->body));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Emitter::UnitOf(const TensorOperandMatch& operand, const Stmt& s) {
  auto place = places_.find(operand.buffer.get());
  if (place == places_.end() || place->second.in_dram) {
    return Bad("memory", StrCat("expected an allocated buffer, found ", operand.buffer->name), s);
  }
  TW_ASSIGN(int64_t base, Value(operand.base));
  const int64_t per_unit = ElementsPerUnit(place->second.memory);
  if (base % per_unit != 0) {
    return Bad("alignment",
               StrCat(operand.buffer->name, ": expected a multiple of ", per_unit,
                      " elements, found ", base),
               s);
  }
  return place->second.offset + base / per_unit;
}

// The steps of the loops around a nest in each operand. False when some operand is not linear in
// them.
absl::StatusOr<bool> Emitter::StepsOf(const std::vector<Stmt>& loops, const TensorMatch& match,
                                      const Stmt& nest, std::vector<LoopStep>* steps,
                                      std::array<int64_t, 3>* base) {
  for (const Stmt& l : loops) {
    TW_ASSIGN(int64_t min, Value(l->range.min));
    TW_ASSIGN(int64_t extent, Value(l->range.extent));
    values_[l->var.get()] = min;
    steps->push_back({.extent = extent});
  }
  const size_t operands = match.operands.size();
  for (size_t k = 0; k < operands; ++k) {
    TW_ASSIGN((*base)[k], UnitOf(match.operands[k], nest));
    for (size_t l = 0; l < loops.size(); ++l) {
      if ((*steps)[l].extent < 2) continue;
      int64_t& value = values_[loops[l]->var.get()];
      ++value;
      TW_ASSIGN(int64_t next, UnitOf(match.operands[k], nest));
      --value;
      (*steps)[l].step[k] = next - (*base)[k];
    }
  }
  // Every point, so that an index with divisions is not taken for a linear one.
  std::vector<int64_t> point(loops.size(), 0);
  bool linear = true;
  for (bool more = true; more && linear;) {
    for (size_t k = 0; linear && k < operands; ++k) {
      int64_t expected = (*base)[k];
      for (size_t l = 0; l < loops.size(); ++l) expected += point[l] * (*steps)[l].step[k];
      TW_ASSIGN(int64_t found, UnitOf(match.operands[k], nest));
      linear = found == expected;
    }
    more = false;
    for (size_t l = loops.size(); l-- > 0 && !more;) {
      more = ++point[l] < (*steps)[l].extent;
      ++values_[loops[l]->var.get()];
      if (more) break;
      values_[loops[l]->var.get()] -= point[l];
      point[l] = 0;
    }
  }
  for (size_t l = 0; l < loops.size(); ++l) values_[loops[l]->var.get()] -= point[l];
  return linear;
}

absl::Status Emitter::EmitNest(const std::vector<Stmt>& loops, const Stmt& nest) {
  std::string_view name = ir::TensorNameOf(*nest);
  TW_ASSIGN(TensorMatch match, ir::MatchTensor(nest, name));
  TensorOp op = match.intrinsic->op;
  bool transfer = op == TensorOp::kVtaLoad || op == TensorOp::kVtaStore;
  if (!transfer && op != TensorOp::kVtaGemm && op != TensorOp::kVtaAlu) {
    return Bad("form", StrCat("expected an intrinsic of the accelerator, found ", name), nest);
  }
  if (!transfer) {
    std::vector<LoopStep> steps;
    std::array<int64_t, 3> base = {};
    TW_ASSIGN(bool linear, StepsOf(loops, match, nest, &steps, &base));
    for (const LoopStep& step : steps) {
      if (step.extent == 0) return absl::OkStatus();
    }
    if (linear) {
      return op == TensorOp::kVtaGemm ? EmitGemm(match, steps, base, nest)
                                      : EmitAlu(match, steps, base, nest);
    }
  }
  if (loops.empty()) return EmitTransfer(match, nest);
  // The outermost loop is written out.
  const Stmt& outer = loops[0];
  TW_ASSIGN(int64_t min, Value(outer->range.min));
  TW_ASSIGN(int64_t extent, Value(outer->range.extent));
  for (int64_t i = 0; i < extent; ++i) {
    values_[outer->var.get()] = min + i;
    TW_TRY(EmitNest({loops.begin() + 1, loops.end()}, nest));
  }
  return absl::OkStatus();
}

// -------------------------------------------------------------------------------------- operations

int64_t Emitter::UopsAt(const std::vector<vta::MicroOp>& wanted) {
  auto found =
      std::search(program_.uops.begin(), program_.uops.end(), wanted.begin(), wanted.end());
  int64_t at = found - program_.uops.begin();
  if (found == program_.uops.end()) {
    program_.uops.insert(program_.uops.end(), wanted.begin(), wanted.end());
  }
  return at;
}

absl::Status Emitter::AddLoops(vta::Instruction instruction, const std::vector<LoopStep>& steps,
                               const std::array<int64_t, 3>& base, std::vector<VtaRegion> regions,
                               const Stmt& s) {
  std::vector<LoopStep> loops;
  for (const LoopStep& step : steps) {
    if (step.extent > 1) loops.push_back(step);
  }
  // The two longest are loops of the instruction, the others are written out as micro-ops.
  std::vector<size_t> order(loops.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return loops[a].extent > loops[b].extent; });
  std::vector<size_t> kept(order.begin(), order.begin() + std::min<size_t>(2, order.size()));
  std::sort(kept.begin(), kept.end());
  LoopStep out, in;
  if (kept.size() == 2) out = loops[kept[0]];
  if (!kept.empty()) in = loops[kept.back()];
  std::vector<vta::MicroOp> uops = {{.dst = base[0], .src = base[1], .wgt = base[2]}};
  for (size_t l = 0; l < loops.size(); ++l) {
    if (std::find(kept.begin(), kept.end(), l) != kept.end()) continue;
    std::vector<vta::MicroOp> wider;
    for (const vta::MicroOp& u : uops) {
      for (int64_t i = 0; i < loops[l].extent; ++i) {
        wider.push_back({u.dst + i * loops[l].step[0], u.src + i * loops[l].step[1],
                         u.wgt + i * loops[l].step[2]});
      }
    }
    uops = std::move(wider);
  }
  instruction.uop_begin = UopsAt(uops);
  instruction.uop_end = instruction.uop_begin + static_cast<int64_t>(uops.size());
  instruction.iter_out = out.extent;
  instruction.iter_in = in.extent;
  instruction.dst_factor_out = out.step[0];
  instruction.dst_factor_in = in.step[0];
  instruction.src_factor_out = out.step[1];
  instruction.src_factor_in = in.step[1];
  instruction.wgt_factor_out = out.step[2];
  instruction.wgt_factor_in = in.step[2];
  return Add(instruction, std::move(regions), s);
}

// The units that an operand touches while the loops run.
VtaRegion RegionOf(Memory memory, const std::vector<LoopStep>& steps, int64_t base, size_t operand,
                   bool is_write) {
  VtaRegion region{static_cast<int>(memory), base, base + 1, is_write};
  for (const LoopStep& s : steps) {
    int64_t far = (s.extent - 1) * s.step[operand];
    (far < 0 ? region.begin : region.end) += far;
  }
  return region;
}

absl::Status Emitter::EmitGemm(const TensorMatch& match, const std::vector<LoopStep>& steps,
                               const std::array<int64_t, 3>& base, const Stmt& nest) {
  vta::Instruction gemm{.op = vta::Opcode::kGemm};
  gemm.reset = match.reset ? 1 : 0;
  std::vector<VtaRegion> regions = {RegionOf(Memory::kAcc, steps, base[0], 0, true)};
  if (!match.reset) {
    regions.push_back(RegionOf(Memory::kInp, steps, base[1], 1, false));
    regions.push_back(RegionOf(Memory::kWgt, steps, base[2], 2, false));
  }
  return AddLoops(gemm, steps, base, std::move(regions), nest);
}

struct AluForm {
  vta::AluOp op;
  bool immediate;
};
std::optional<AluForm> AluFormOf(std::string_view name) {
  constexpr std::string_view kPrefix = "vta.alu.", kImmediate = ".imm";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  bool immediate = name.ends_with(kImmediate);
  if (immediate) name.remove_suffix(kImmediate.size());
#define TW_VTA_ALU_OP(Name, text, value) \
  if (name == text) return AluForm{vta::AluOp::k##Name, immediate};
#include "vta/isa/isa.def"
  return std::nullopt;
}

absl::Status Emitter::EmitAlu(const TensorMatch& match, const std::vector<LoopStep>& steps,
                              std::array<int64_t, 3> base, const Stmt& nest) {
  std::optional<AluForm> form = AluFormOf(match.intrinsic->name);
  TW_CHECK(form.has_value()) << match.intrinsic->name;
  vta::Instruction alu{.op = vta::Opcode::kAlu};
  alu.operation = static_cast<int64_t>(form->op);
  alu.use_imm = form->immediate ? 1 : 0;
  if (form->immediate) {
    int64_t value = match.immediates.at(0);
    bool shift = form->op == vta::AluOp::kShr;
    bool power = value > 0 && (value & (value - 1)) == 0;
    if ((shift && !power) || (!shift && value != static_cast<int16_t>(value))) {
      return Bad(
          "immediate",
          StrCat("expected ", shift ? "a power of two" : "16 signed bits", ", found ", value),
          nest);
    }
    alu.imm = shift ? __builtin_ctzll(static_cast<uint64_t>(value)) : value;
  }
  // dst = src op other: the instruction works on dst, so src must be there already.
  std::vector<VtaRegion> regions = {RegionOf(Memory::kAcc, steps, base[0], 0, true)};
  auto same = [&](size_t k) {
    bool equal = base[0] == base[k];
    for (const LoopStep& s : steps) equal = equal && (s.extent < 2 || s.step[0] == s.step[k]);
    return equal;
  };
  std::vector<LoopStep> moved = steps;
  auto use_as_source = [&](size_t k, std::vector<LoopStep>* to, std::array<int64_t, 3>* at) {
    (*at)[1] = base[k];
    for (size_t l = 0; l < steps.size(); ++l) (*to)[l].step[1] = steps[l].step[k];
    (*at)[2] = 0;
    for (LoopStep& s : *to) s.step[2] = 0;
  };
  std::array<int64_t, 3> at = base;
  size_t other = form->immediate ? 1 : 2;
  if (!same(1) && !form->immediate && same(2)) {
    other = 1;  // all operations of two tensors commute
  } else if (!same(1)) {
    vta::Instruction clear{.op = vta::Opcode::kGemm};
    clear.reset = 1;
    std::array<int64_t, 3> only = {base[0], 0, 0};
    std::vector<LoopStep> dst_only = steps;
    for (LoopStep& s : dst_only) s.step[1] = s.step[2] = 0;
    TW_TRY(AddLoops(clear, dst_only, only, regions, nest));
    vta::Instruction copy{.op = vta::Opcode::kAlu};
    copy.operation = static_cast<int64_t>(vta::AluOp::kAdd);
    use_as_source(1, &moved, &at);
    std::vector<VtaRegion> both = regions;
    both.push_back(RegionOf(Memory::kAcc, steps, base[1], 1, false));
    TW_TRY(AddLoops(copy, moved, at, std::move(both), nest));
  }
  use_as_source(other, &moved, &at);
  if (form->immediate) {
    at[1] = at[0];
    for (LoopStep& s : moved) s.step[1] = s.step[0];
  } else {
    regions.push_back(RegionOf(Memory::kAcc, steps, base[other], other, false));
  }
  return AddLoops(alu, moved, at, std::move(regions), nest);
}

absl::Status Emitter::EmitTransfer(const TensorMatch& match, const Stmt& nest) {
  const bool is_store = match.intrinsic->op == TensorOp::kVtaStore;
  const TensorOperandMatch& on_chip = match.operands[is_store ? 1 : 0];
  const TensorOperandMatch& in_dram = match.operands[is_store ? 0 : 1];
  auto place = places_.find(in_dram.buffer.get());
  if (place == places_.end() || !place->second.in_dram) {
    return Bad("memory", StrCat("expected a parameter in DRAM, found ", in_dram.buffer->name),
               nest);
  }
  TW_ASSIGN(int64_t sram, UnitOf(on_chip, nest));
  TW_ASSIGN(int64_t dram, Value(in_dram.base));
  const Memory held = places_[on_chip.buffer.get()].memory;
  const Memory memory = is_store ? Memory::kOut : held;
  const int64_t per_unit = ElementsPerUnit(held);
  const int64_t unit_bytes = vta::InfoOf(memory).element_bytes;
  const int64_t first_byte = place->second.offset + dram * in_dram.buffer->dtype.bytes();
  // Rows of rows, or one row; a row with gaps in DRAM is as good as a column.
  const size_t inner = held == Memory::kWgt ? 2 : 1;  // loops over an element
  const size_t x_loop = match.extents.size() - inner - 1;
  const bool column = x_loop == 0 && in_dram.strides[0] != ElementsPerUnit(held);
  const int64_t ny = x_loop == 1 || column ? match.extents[0] : 1;
  const int64_t nx = column ? 1 : match.extents[x_loop];
  const int64_t chip_y = on_chip.strides[0], chip_x = on_chip.strides[x_loop];
  const int64_t dram_y = in_dram.strides[0], dram_x = in_dram.strides[x_loop];
  for (int64_t stride :
       {ny > 1 ? chip_y : 0, nx > 1 ? chip_x : 0, ny > 1 ? dram_y : 0, nx > 1 ? dram_x : 0, dram}) {
    if (stride % per_unit != 0) {
      return Bad("alignment",
                 StrCat("expected multiples of ", per_unit, " elements, found ", stride), nest);
    }
  }
  // Rows that lie without gaps on the chip are one instruction; else one a row, or one an element.
  bool x_joins = nx == 1 || (chip_x == per_unit && dram_x == per_unit);
  bool y_joins = ny == 1 || (x_joins && chip_y == nx * per_unit);
  const int64_t rows = y_joins ? 1 : ny, pieces = x_joins ? 1 : nx;
  for (int64_t y = 0; y < rows; ++y) {
    for (int64_t x = 0; x < pieces; ++x) {
      vta::Instruction move{.op = is_store ? vta::Opcode::kStore : vta::Opcode::kLoad};
      const int64_t offset = y * chip_y + x * chip_x;
      const int64_t byte = first_byte + (y * dram_y + x * dram_x) * in_dram.buffer->dtype.bytes();
      move.memory = static_cast<int64_t>(memory);
      move.sram_base = sram + offset / per_unit;
      move.dram_base = byte / unit_bytes;
      move.y_size = y_joins ? ny : 1;
      move.x_size = x_joins ? nx : 1;
      move.x_stride = move.y_size > 1 ? dram_y / per_unit : move.x_size;
      const int64_t units = move.y_size * move.x_size;
      const int64_t last_byte =
          byte + ((move.y_size - 1) * move.x_stride + move.x_size) * unit_bytes;
      TW_TRY(Add(move,
                 {{static_cast<int>(held), move.sram_base, move.sram_base + units, !is_store},
                  {kDramSpace, byte, last_byte, is_store}},
                 nest));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<VtaProgram> Emitter::Run() {
  if (function_.stage != ir::Stage::kLoops) {
    return support::InvalidArgument("codegen.vta.stage",
                                    StrCat(function_.name, ": expected stage loops"));
  }
  if (!function_.size_params.empty()) {
    return support::InvalidArgument("codegen.vta.extent",
                                    StrCat(function_.name, ": expected constant sizes, found ",
                                           function_.size_params[0]->name));
  }
  TW_TRY(PlaceParams());
  nests_ = MarkedNests(function_.body);
  TW_TRY(Walk(function_.body));
  const int64_t uops = static_cast<int64_t>(program_.uops.size());
  const int64_t capacity = vta::InfoOf(Memory::kUop).elements;
  if (uops > capacity) {
    return support::ResourceExhausted(
        "codegen.vta.memory", StrCat("expected at most ", capacity, " micro-ops, found ", uops));
  }
  program_.image_bytes = program_.uop_offset + uops * 4;
  if (uops > 0) {
    // On the same module as everything that uses them, so in order with it.
    vta::Instruction load{.op = vta::Opcode::kLoad};
    load.memory = static_cast<int64_t>(Memory::kUop);
    load.dram_base = program_.uop_offset / 4;
    load.y_size = 1;
    load.x_size = load.x_stride = uops;
    events_.insert(events_.begin(), {load, {}});
  }
  events_.push_back({vta::Instruction{.op = vta::Opcode::kFinish}, {}});
  TW_TRY(DeriveVtaTokens(&events_));
  for (const VtaEvent& e : events_) program_.stream.push_back(e.instruction);
  TW_TRY(program_.Encoded().status());
  return std::move(program_);
}

}  // namespace

std::string VtaProgram::Listing() const {
  std::string text;
  for (const Param& p : params) {
    text += StrCat("# ", p.name, ": bytes ", p.offset, " to ", p.offset + p.bytes, "\n");
  }
  text += StrCat("# micro-ops: bytes ", uop_offset, " to ", image_bytes, "\n");
  for (size_t i = 0; i < stream.size(); ++i) {
    text += StrCat(i, ": ", vta::Disassemble(stream[i]), "\n");
  }
  for (size_t i = 0; i < uops.size(); ++i) {
    text +=
        StrCat("uop ", i, ": dst=", uops[i].dst, " src=", uops[i].src, " wgt=", uops[i].wgt, "\n");
  }
  return text;
}

absl::StatusOr<std::vector<vta::Word128>> VtaProgram::Encoded() const {
  std::vector<vta::Word128> words;
  for (size_t i = 0; i < stream.size(); ++i) {
    auto word = vta::Encode(stream[i]);
    if (!word.ok()) return support::WithContext(word.status(), StrCat("instruction ", i));
    words.push_back(*word);
  }
  return words;
}

absl::StatusOr<std::vector<uint8_t>> VtaProgram::Image() const {
  std::vector<uint8_t> image(static_cast<size_t>(image_bytes), 0);
  for (size_t i = 0; i < uops.size(); ++i) {
    TW_ASSIGN(uint32_t word, vta::EncodeUop(uops[i]));
    std::memcpy(image.data() + uop_offset + 4 * static_cast<int64_t>(i), &word, sizeof word);
  }
  return image;
}

absl::StatusOr<VtaProgram> GenerateVta(const ir::Function& f) { return Emitter(f).Run(); }

}  // namespace tilewright::codegen
