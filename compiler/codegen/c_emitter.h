// What writes kernels as C text: c_like.cc has what is around statements, c_statements.cc the
// statements, c_fragments.cc the fragments of matrices, c_bulk_copies.cc the copies of tiles. For
// these only. One owner.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "compiler/codegen/c_like.h"
#include "compiler/codegen/c_like_expr.h"
#include "compiler/codegen/fragments.h"
#include "compiler/codegen/sub_group_sums.h"
#include "compiler/ir/ir.h"

namespace tilewright::codegen {

// `text` with each `what` as `with`.
std::string Replaced(std::string text, std::string_view what, std::string_view with);
// Whether copies in `body` can be started without a thread that waits for them.
bool HasWideAsync(const ir::Stmt& body);

class CEmitter {
 public:
  CEmitter(const CDialect& dialect, bool sub_groups)
      : dialect_(dialect),
        expr_(dialect),
        sub_groups_(sub_groups && !dialect.sub_groups.reduce.empty()) {}

  absl::Status AddKernel(const ir::Function& f);
  CText Text() const;

 private:
  void Line(std::string_view text) {
    out_.append(static_cast<size_t>(indent_) * 2, ' ').append(text).append("\n");
  }
  // Returns where the parameters end.
  size_t Signature(const ir::Function& f, const std::set<const ir::BufferNode*>& read_back);
  // An array of a group, and where it begins in all of its shared memory, whose end comes last.
  struct SharedArray {
    ir::Buffer buffer;
    int64_t elements, offset;
  };
  int64_t AlignmentOf(const ir::BufferNode& shared) const;
  std::vector<SharedArray> SharedArraysOf(const ir::Stmt& body) const;
  void SharedBuffers(const std::vector<SharedArray>& arrays, bool dynamic);
  void Emit(const ir::Stmt& s);
  void EmitBraced(std::string_view head, const ir::Stmt& body);
  std::string LoopHead(const ir::Stmt& s, bool in_turn);
  void EmitFor(const ir::Stmt& s);
  void EmitSubGroupSum(const ir::Stmt& s, const SubGroupSum& sum);
  void EmitIf(const ir::Stmt& s);
  std::string EmitTensor(const ir::Stmt& s);
  std::string SharedFactor(const ir::TensorOperandMatch& factor, size_t rows, size_t columns);
  bool IsSharedProduct(const ir::Stmt& s) const;
  void EmitSharedProducts(std::span<const ir::Stmt> products);
  void EmitSequence(std::span<const ir::Stmt> stmts);
  void EmitFragmentMap(const ir::Stmt& s);
  std::string Fragment(const ir::Buffer& buffer, const FragmentLayout& layout,
                       const ir::Expr& base);
  std::string FragmentArray(const ir::Buffer& buffer);
  bool CopyAsync(const ir::Stmt& s);
  bool EmitBulkCopy(const ir::Stmt& s);
  std::string MapOf(const ir::Buffer& buffer, int64_t row, int64_t box_rows);
  // Where the text of a kernel begins, and where its parameters and its body go on.
  struct KernelPlaces {
    size_t begin = 0, parameters = 0, body = 0;
  };
  void AddBulkCopies(const std::string& kernel, const KernelPlaces& places);
  bool HasBulkCopies(const ir::Stmt& body) const;
  void EmitStore(const ir::Stmt& s);
  void EmitSync(const ir::Stmt& s);
  void LoadRuns(const ir::Expr& value, const ir::Expr& condition);
  std::vector<std::string> LanesOf(const ir::Expr& value);
  void EmitAlloc(const ir::Stmt& s);
  std::string Array(const ir::Buffer& b);

  const CDialect& dialect_;
  CExpressions expr_;
  const bool sub_groups_;
  std::string out_;
  int indent_ = 0;
  SubGroupSums sums_;  // of the kernel
  bool uses_sub_groups_ = false, uses_fragments_ = false, uses_shared_factors_ = false,
       uses_async_ = false, uses_dynamic_ = false, uses_bulk_ = false;
  bool async_ = false;     // of the kernel: it has copies that no thread waits for
  bool in_async_ = false;  // of the statement
  struct BulkMap {
    std::string name;
    std::vector<int64_t> numbers;  // BulkCopyWords::maps
  };
  std::vector<BulkMap> bulk_maps_;                           // of the kernel
  ir::Buffer bulk_words_;                                    // of a kernel that may have copies
  std::map<const ir::BufferNode*, int64_t> buffer_numbers_;  // of its parameters
  std::string_view barrier_;                                 // of the kernel
  KernelFragments fragments_;                                // of the kernel
  ir::Var warp_thread_;  // of the kernel: the thread along x, if those have the fragments
};

}  // namespace tilewright::codegen
