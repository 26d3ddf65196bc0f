// The emitter of instruction streams: a class over several files. Internal to compiler/targets/vta.
// Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/targets/vta/vta_cleared.h"
#include "compiler/targets/vta/vta_codegen.h"
#include "compiler/targets/vta/vta_tokens.h"
#include "compiler/targets/vta/vta_uops.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {

// intrinsics_vta.cc
inline constexpr std::string_view kWiden = "vta.widen", kMaxInto = "vta.alu.max.into";

// A nest's operands where it is a marked one.
std::vector<ir::TensorMatch> MarkedNests(const ir::Stmt& s);

// Where a buffer lives: at an element of a memory, or at a byte of the image.
struct VtaPlace {
  bool in_dram = false;
  vta::Memory memory = vta::Memory::kAcc;
  int64_t offset = 0;  // bytes of DRAM, or units of the memory
};

// How loops become an instruction: two are its own, the others are its micro-ops.
struct LoopPlan {
  VtaLoopStep out = {}, in = {};
  std::vector<vta::MicroOp> uops;
  size_t sums = 1;  // so many micro-ops, from the first, are of different sums
};

// The units that an operand touches while the loops run.
VtaRegion RegionOf(vta::Memory memory, const std::vector<VtaLoopStep>& steps, int64_t base,
                   size_t operand, bool is_write);

// One loop of a load or store: elements between its iterations on the chip and in DRAM, and the
// iterations [valid_begin, valid_end) that are not padding.
struct TransferDim {
  int64_t extent = 1, chip = 0, dram = 0;
  int64_t valid_begin = 0, valid_end = 1;
  ir::Var var = {};  // null: a loop of the intrinsic's own
  bool is_whole() const { return valid_begin == 0 && valid_end == extent; }
};
// What one instruction moves: rows of elements, from these on.
struct TransferRows {
  bool is_store = false;
  vta::Memory held = vta::Memory::kInp;  // on the chip
  int64_t chip = 0, dram = 0;            // elements of the memory
  TransferDim y = {}, x = {};
};

class VtaEmitter {
 public:
  VtaEmitter(const Isa& isa, const ir::Function& f)
      : isa_(isa), function_(f), cleared_(isa.InfoOf(vta::Memory::kAcc).elements) {}

  absl::StatusOr<Program> Run();

 private:
  // Constant expressions over the loops that are being written out.
  absl::StatusOr<int64_t> Value(const ir::Expr& e);
  absl::Status Bad(std::string_view reason, std::string detail, const ir::Stmt& s) {
    return support::InvalidArgument(support::StrCat("codegen.vta.", reason),
                                    support::StrCat(detail, " in:\n", ir::Print(s)));
  }

  absl::Status Walk(const ir::Stmt& s);
  absl::Status WalkFor(const ir::Stmt& s);
  absl::Status WalkAlloc(const ir::Stmt& s);
  absl::Status WalkLive(const ir::Stmt& alloc);
  bool CanShare(const ir::Buffer& s, const ir::Buffer& d, const ir::Stmt& body) const;
  absl::Status PlaceParams();
  absl::Status Add(const vta::Instruction& instruction, std::vector<VtaRegion> regions,
                   const ir::Stmt& s);
  // codegen.vta.extent: a program cannot be so long.
  absl::Status CheckLength(size_t instructions, const ir::Stmt& s);

  int64_t lanes() const { return isa_.config().block; }
  // Scalars in an element of a memory.
  int64_t ElementsPerUnit(vta::Memory memory) const {
    return memory == vta::Memory::kWgt ? lanes() * lanes() : lanes();
  }
  // The memory of each operand; of one in DRAM, the memory that it is moved to or from.
  absl::StatusOr<std::vector<vta::Memory>> MemoriesOf(const ir::TensorMatch& match,
                                                      const ir::Stmt& nest);
  // An operand in units of a memory.
  absl::StatusOr<int64_t> UnitOf(const ir::TensorOperandMatch& operand, vta::Memory held,
                                 const ir::Stmt& s);
  absl::Status EmitNest(const std::vector<ir::Stmt>& loops, const ir::Stmt& nest);
  // Whether the body of the loops is the reset of a sum and its only product, or those of several
  // threads, and each of their iterations has sums of its own: then all of them may be reset before
  // the first product.
  absl::StatusOr<bool> BeginsSums(const std::vector<ir::Stmt>& loops,
                                  const std::vector<ir::Stmt>& nests);
  absl::StatusOr<bool> StepsOf(const std::vector<ir::Stmt>& loops, const ir::TensorMatch& match,
                               const ir::Stmt& nest, std::vector<VtaLoopStep>* steps,
                               std::array<int64_t, 3>* base);
  absl::Status EmitGemm(const ir::TensorMatch& match, const std::vector<VtaLoopStep>& steps,
                        const std::array<int64_t, 3>& base, const ir::Stmt& nest);
  absl::Status EmitWiden(const std::vector<VtaLoopStep>& steps, const std::array<int64_t, 3>& base,
                         const ir::Stmt& nest);
  absl::Status Clear(std::vector<VtaLoopStep> steps, int64_t base, const ir::Stmt& nest);
  absl::Status EmitMaxInto(const ir::TensorMatch& match, const std::vector<VtaLoopStep>& steps,
                           const std::array<int64_t, 3>& base, const ir::Stmt& nest);
  absl::Status EmitAlu(const ir::TensorMatch& match, const std::vector<VtaLoopStep>& steps,
                       std::array<int64_t, 3> base, const ir::Stmt& nest);
  absl::Status EmitTransfer(const ir::TensorMatch& match, const std::vector<ir::Stmt>& loops,
                            const std::vector<VtaLoopStep>& steps,
                            const std::array<int64_t, 3>& base, const ir::Stmt& nest);
  absl::Status NarrowToGuard(const ir::Expr& guard, const ir::Stmt& nest,
                             std::vector<TransferDim>* dims);
  absl::Status EmitRows(const TransferRows& rows, std::span<const TransferDim> outer,
                        const ir::Stmt& nest);
  // An instruction with micro-ops over `steps`; operand k moves by step[k] and starts at base[k].
  // Several instructions if their micro-ops do not fit the chip at the same time.
  absl::Status AddLoops(const vta::Instruction& instruction, const std::vector<VtaLoopStep>& steps,
                        const std::array<int64_t, 3>& base, const std::vector<VtaRegion>& regions,
                        const ir::Stmt& s);
  // Products that begin their sums.
  absl::Status AddFirstProducts(const std::vector<VtaLoopStep>& steps,
                                const std::array<int64_t, 3>& base,
                                const std::vector<VtaRegion>& regions, const ir::Stmt& s);
  absl::Status AddPart(vta::Instruction instruction, const LoopPlan& plan,
                       std::span<const vta::MicroOp> uops, const std::vector<VtaRegion>& regions,
                       const ir::Stmt& s);
  // Instructions that clear what is still to be cleared of these.
  absl::Status ClearNow(const std::vector<VtaRegion>& regions, const ir::Stmt& s);
  // Whether some nest multiplies by an identity matrix, which has the last place of its memory.
  bool Widens() const;
  int64_t IdentityPlace() const { return isa_.InfoOf(vta::Memory::kWgt).elements - 1; }

  const Isa& isa_;
  const ir::Function& function_;
  Program program_;
  std::vector<VtaEvent> events_;
  std::unordered_map<const ir::ExprNode*, int64_t> values_;
  std::unordered_map<const ir::BufferNode*, VtaPlace> places_;
  std::array<int64_t, 8> used_ = {};    // of each memory, in units
  std::vector<ir::Buffer> live_;        // allocated around the statement, outermost first
  std::vector<ir::TensorMatch> nests_;  // of the whole function
  // Nests that were emitted before, in other iterations of the loops around them.
  std::unordered_map<const ir::StmtNode*, ir::TensorMatch> matches_;
  ClearedSums cleared_;
  MicroOpTable uops_;
  bool has_identity_ = false;  // it was loaded
};

}  // namespace tilewright::vta
