// Kernels of c_like: what is around their statements.
#include "compiler/codegen/c_like.h"

#include <algorithm>
#include <array>
#include <set>

#include "compiler/codegen/c_emitter.h"
#include "compiler/codegen/group_memory.h"
#include "compiler/codegen/index_width.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::codegen {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtKind;
using support::StrCat;

std::string HelperText(std::string_view helper) {
  size_t colon = helper.find(':');
  std::string name(helper.substr(0, colon)), type(helper.substr(colon + 1));
  std::string head =
      StrCat("static inline ", type, " tw_", name, "_", type, "(", type, " a, ", type, " b) {\n");
  if (name == "rounding_shift") {
    return head +
           "  return b == 0 ? a : b < 8 * sizeof(a) ? (a >> b) + (a >> (b - 1) & 1) : 0;\n}\n";
  }
  if (name == "floordiv")
    return head + "  return a / b - (a % b != 0 && (a % b < 0) != (b < 0));\n}\n";
  return head + "  return a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0);\n}\n";
}

}  // namespace

CText CEmitter::Text() const {
  CText result{StrCat(dialect_.prologue, dialect_.base_prologue), {}};
  const auto add = [&result](const OptionalFeature& used) {
    result.text += used.prologue;
    if (!used.feature.empty()) result.features.emplace_back(used.feature);
  };
  if (expr_.uses_wide()) result.text += dialect_.wide_text;
  if (expr_.uses_dot4()) result.text += dialect_.dot4_text;
  if (expr_.uses_half()) add(dialect_.half);
  if (expr_.uses_bfloat()) add(dialect_.bfloat);
  if (expr_.uses_double()) add(dialect_.float64);
  if (uses_sub_groups_) add(dialect_.sub_groups.feature);
  if (uses_fragments_) result.text += dialect_.fragments.prologue;
  if (uses_shared_factors_) result.text += dialect_.fragments.shared.prologue;
  if (uses_async_) result.text += dialect_.async.prologue;
  if (uses_bulk_) result.text += dialect_.bulk.prologue;
  if (uses_dynamic_) result.text += dialect_.dynamic_shared.prologue;
  std::sort(result.features.begin(), result.features.end());
  for (const std::string& helper : expr_.helpers()) result.text += HelperText(helper);
  result.text += out_;
  return result;
}

// `float name[n]`, for a buffer of constant size.
std::string CEmitter::Array(const ir::Buffer& b) {
  const int64_t elements = ElementsOf(*b);
  if (elements == 0) expr_.Fail(StrCat("buffer ", b->name, " of symbolic size"));
  return StrCat(expr_.MemoryOf(b->dtype), " ", expr_.Declare(b.get(), b->name), "[", elements, "]");
}

size_t CEmitter::Signature(const ir::Function& f,
                           const std::set<const ir::BufferNode*>& read_back) {
  const auto group = GroupOf(f);
  if (!group.has_value()) {
    expr_.Fail("a group of symbolic size");
    return out_.size();
  }
  std::string attribute(dialect_.group_size);
  for (size_t a = 0; a < 3; ++a) {
    attribute = Replaced(attribute, std::string("%") + "xyz"[a], std::to_string((*group)[a]));
  }
  std::string params;
  int number = 0;
  const auto numbered = [&number](std::string_view text) {
    return Replaced(std::string(text), "#", std::to_string(number));
  };
  for (const ir::Var& v : f.size_params) {
    params += StrCat(params.empty() ? "" : ", ",
                     Replaced(numbered(dialect_.size_param), "@", expr_.Declare(v.get(), v->name)));
    ++number;
  }
  for (const ir::Buffer& b : f.params) {
    // A compiler takes it that no one else writes through a restrict pointer, not even across a
    // barrier: a thread would keep what it read before another thread wrote.
    const std::string_view pointer = read_back.contains(b.get()) ? "* " : "* restrict ";
    params += StrCat(params.empty() ? "" : ", ", dialect_.global,
                     b->role == ir::Role::kOutput ? "" : "const ", expr_.MemoryOf(b->dtype),
                     pointer, expr_.Declare(b.get(), b->name), numbered(dialect_.buffer_place));
    ++number;
  }
  if (!dialect_.thread_params.empty())
    params += StrCat(params.empty() ? "" : ", ", dialect_.thread_params);
  if (dialect_.most_buffers > 0 && static_cast<size_t>(number) > dialect_.most_buffers)
    expr_.Fail(StrCat(number, " buffers, of at most ", dialect_.most_buffers));
  out_ +=
      StrCat(out_.empty() ? "" : "\n", dialect_.kernel, attribute, "void ", f.name, "(", params);
  const size_t end = out_.size();
  out_ += ") {\n";
  return end;
}

int64_t CEmitter::AlignmentOf(const ir::BufferNode& shared) const {
  constexpr int64_t kUsual = 16;
  return fragments_.placed.contains(&shared) ? dialect_.fragments.shared.align : kUsual;
}

std::vector<CEmitter::SharedArray> CEmitter::SharedArraysOf(const Stmt& body) const {
  std::vector<SharedArray> arrays;
  int64_t offset = 0;
  ir::VisitStmts(body, [&](const Stmt& s) {
    if (s->kind != StmtKind::kAlloc || s->buffer->scope != ir::Scope::kShared) return true;
    const int64_t elements = ElementsOf(*s->buffer);
    const int64_t bytes = elements * s->buffer->dtype.bytes();
    const int64_t align = AlignmentOf(*s->buffer);
    offset = (offset + align - 1) / align * align;
    arrays.push_back({s->buffer, elements, offset});
    offset += bytes;
    return true;
  });
  if (bulk_words_ != nullptr) {
    const int64_t words = dialect_.bulk.words, bytes = bulk_words_->dtype.bytes();
    offset = (offset + bytes - 1) / bytes * bytes;
    arrays.push_back({bulk_words_, words, offset});
    offset += words * bytes;
  }
  arrays.push_back({nullptr, 0, offset});  // the end
  return arrays;
}

void CEmitter::SharedBuffers(const std::vector<SharedArray>& arrays, bool dynamic) {
  if (dynamic) Line(dialect_.dynamic_shared.memory);
  for (const SharedArray& a : arrays) {
    if (a.buffer == nullptr) continue;
    if (dynamic) {
      const std::string type = expr_.MemoryOf(a.buffer->dtype);
      Line(StrCat(dialect_.dynamic_shared.array, "(", type, ", ",
                  expr_.Declare(a.buffer.get(), a.buffer->name), ", ", a.elements, ", ", a.offset,
                  ");"));
    } else {
      Line(StrCat(
          Replaced(std::string(dialect_.shared), "@", std::to_string(AlignmentOf(*a.buffer))),
          Array(a.buffer), ";"));
    }
  }
}

absl::Status CEmitter::AddKernel(const ir::Function& f) {
  if (f.stage != ir::Stage::kFlat) {
    return support::FailedPrecondition(StrCat("codegen.", dialect_.name, ".not_flat"),
                                       StrCat("expected a function of stage flat, found ", f.name));
  }
  expr_.StartKernel(FitsInt32(f));
  TW_ASSIGN(fragments_, FindFragments(f));
  for (const auto& [buffer, factor] : fragments_.placed) {
    expr_.Place(buffer,
                StrCat(dialect_.fragments.shared.place, "<", factor.row, ", ", factor.rows, ">"));
  }
  const std::set<const ir::BufferNode*> read_back = ReadBack(f);
  bulk_words_ = nullptr;
  if (HasBulkCopies(f.body)) {
    bulk_words_ = ir::MakeBuffer("arrivals", ir::kU64, {ir::Int(dialect_.bulk.words)},
                                 ir::Role::kIntermediate, ir::Scope::kShared);
  }
  const std::vector<SharedArray> shared = SharedArraysOf(f.body);
  const DynamicSharedWords& words = dialect_.dynamic_shared;
  const bool dynamic = words.above > 0 && shared.back().offset > words.above;
  uses_dynamic_ = uses_dynamic_ || dynamic;
  KernelPlaces places{.begin = out_.size()};
  if (dynamic) {
    const std::string kib = std::to_string((shared.back().offset + 1023) / 1024);
    out_ += StrCat(Replaced(Replaced(std::string(words.size), "@", f.name), "#", kib), "\n");
  }
  places.parameters = Signature(f, read_back);
  bulk_maps_.clear();
  buffer_numbers_.clear();
  for (const ir::Buffer& b : f.params)
    buffer_numbers_.emplace(b.get(), static_cast<int64_t>(buffer_numbers_.size()));
  barrier_ = OrdersGlobalMemory(f) ? dialect_.global_barrier : dialect_.barrier;
  if (!fragments_.placed.empty()) barrier_ = dialect_.fragments.shared.barrier;
  if (sub_groups_) sums_ = FindSubGroupSums(f);
  async_ = !dialect_.async.copy.empty() && HasWideAsync(f.body);
  warp_thread_ = nullptr;
  indent_ = 1;
  SharedBuffers(shared, dynamic);
  places.body = out_.size();
  Emit(f.body);
  indent_ = 0;
  out_ += "}\n";
  AddBulkCopies(f.name, places);
  if (expr_.error().empty()) return absl::OkStatus();
  return support::Unimplemented(
      StrCat("codegen.", dialect_.name, ".unsupported"),
      StrCat("expected what the language has, found ", expr_.error(), " in ", f.name));
}

absl::StatusOr<CText> EmitC(const std::vector<ir::Function>& kernels, const CDialect& dialect,
                            bool sub_groups) {
  CEmitter emitter(dialect, sub_groups);
  for (const ir::Function& f : kernels) TW_TRY(emitter.AddKernel(f));
  return emitter.Text();
}

}  // namespace tilewright::codegen
