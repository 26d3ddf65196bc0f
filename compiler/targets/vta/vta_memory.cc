// Where buffers live: parameters in DRAM, allocations at an element of their memory while they
// live.
#include <algorithm>
#include <optional>

#include "compiler/ir/structural.h"
#include "compiler/ir/text_words.h"
#include "compiler/ir/visit.h"
#include "compiler/targets/vta/vta_emitter.h"

namespace tilewright::vta {

namespace {

using ir::Buffer;
using ir::Expr;
using ir::Stmt;
using ir::StmtKind;
using ir::TensorMatch;
using ir::TensorOp;
using ir::TensorOperandMatch;
using support::StrCat;
using vta::Memory;

std::optional<Memory> MemoryOf(const Buffer& buffer) {
  const std::string_view scope = ir::ScopeText(buffer->scope);
#define TW_VTA_MEMORY(Name, text, value, element_bytes, elements, what) \
  if (scope == "vta." text) return Memory::k##Name;
#include "vta/isa/isa.def"
  return std::nullopt;
}

}  // namespace

absl::Status VtaEmitter::PlaceParams() {
  int64_t at = 0, alignment = 1;
  for (const MemoryInfo& m : isa_.Memories()) alignment = std::max(alignment, m.element_bytes);
  for (const Buffer& b : function_.params) {
    int64_t bytes = b->dtype.bytes();
    for (const Expr& extent : b->shape) {
      TW_ASSIGN(int64_t n, Value(extent));
      bytes *= n;
    }
    program_.params.push_back({b->name, at, bytes});
    places_[b.get()] = {.in_dram = true, .offset = at};
    at += (bytes + alignment - 1) / alignment * alignment;
  }
  if (Widens()) {
    const int64_t n = lanes();
    program_.constants.assign(static_cast<size_t>(n * n), '\0');
    for (int64_t i = 0; i < n; ++i) program_.constants[static_cast<size_t>(i * n + i)] = 1;
    at += n * n;
  }
  program_.uop_offset = at;
  return absl::OkStatus();
}

bool VtaEmitter::Widens() const {
  return std::any_of(nests_.begin(), nests_.end(),
                     [](const TensorMatch& m) { return m.intrinsic->name == kWiden; });
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
bool VtaEmitter::CanShare(const Buffer& s, const Buffer& d, const Stmt& body) const {
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
      if (m.intrinsic->op != TensorOp::kAlu || m.operands[1].buffer != s ||
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

absl::Status VtaEmitter::WalkAlloc(const Stmt& s) {
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
  const int64_t capacity =
      *memory == Memory::kWgt && Widens() ? IdentityPlace() : isa_.InfoOf(*memory).elements;
  if (used + units > capacity) {
    return Bad("memory",
               StrCat("expected ", capacity, " elements of ", isa_.InfoOf(*memory).text,
                      " at most, found ", used + units, " with ", buffer->name),
               ir::MakeAlloc(buffer, ir::MakeSeq({})));
  }
  places_[buffer.get()] = {.memory = *memory, .offset = used};
  used += units;
  TW_TRY(WalkLive(s));
  used -= units;
  if (*memory == Memory::kAcc) cleared_.Forget(used, used + units);
  return absl::OkStatus();
}

absl::Status VtaEmitter::WalkLive(const Stmt& alloc) {
  live_.push_back(alloc->buffer);
  TW_TRY(Walk(alloc->body));
  live_.pop_back();
  places_.erase(alloc->buffer.get());
  return absl::OkStatus();
}

}  // namespace tilewright::vta
