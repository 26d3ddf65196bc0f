// The body of one function of a SPIR-V module. Control flow is structured: loops and conditions are
// calls that take their bodies. An operation without effects that was done before is not done
// again, and it is at the outermost place where its operands are known: drivers need not find
// what a loop does alike in each iteration. Nothing here traps, so what a condition guards may be
// done before it. One owner; borrows the module.
#pragma once

#include <spirv/unified1/GLSL.std.450.h>

#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "compiler/targets/vulkan/spirv_module.h"

namespace tilewright::vulkan {

class SpirvCode {
 public:
  explicit SpirvCode(SpirvModule* module);

  SpirvModule& module() { return module_; }

  // An operation without effects: of the module's sort, of GLSL.std.450, or a call of a function
  // that has none. Sums and products of floats are not contracted.
  Id Op(spv::Op op, Id type, const Words& operands);
  Id Math(GLSLstd450 function, Id type, const Words& operands);
  Id Call(Id function, Id type, const Words& operands);
  // Component `index` of a vector.
  Id Component(Id type, Id vector, uint32_t index);

  Id Parameter(Id type);
  // A variable of the thread. `type` is what it points to.
  Id Variable(Id type);
  // Loads and stores. `root` is the variable that `pointer` points into. What no thread
  // stores to (`constant`) is loaded once.
  Id Load(Id type, Id pointer, Id root, bool constant = false);
  void Store(Id pointer, Id value, Id root);
  // Sub-groups. REQUIRES: all threads of a group come here together. The threads of a sub-group are
  // counted: a group may end in a smaller one, and some drivers run smaller ones than they say.
  Id LaneInSubGroup();
  Id LanesOfSubGroup();
  // Puts together (`op`: OpGroupNonUniformFAdd ...) what the threads of a sub-group have; all of
  // them get the result.
  Id ReduceInSubGroup(spv::Op op, Id type, Id value);
  // All threads of a group come here; orders shared memory, and `global` memory, too.
  void Barrier(bool global);

  using Body = std::function<void()>;
  void If(Id condition, const Body& then_body, const Body& else_body = nullptr);
  // for (i = first; i < end; i += step), signed, of an integer type of so many bits.
  void For(int bits, Id first, Id end, Id step, const std::function<void(Id)>& body);
  // Runs `body` while `condition`, evaluated before each iteration, holds.
  void While(const std::function<Id()>& condition, const Body& body);

  // Returns the whole function. `result` 0: it returns nothing.
  Words Finish(Id function, Id type, Id result_type, Id result);

 private:
  // Instructions in a row of blocks that are nested in no others of the same region, and what was
  // computed in it.
  struct Region {
    Words words;
    Id label;                 // of the block at its end
    std::vector<Words> keys;  // of computed_
  };

  Id Placed(spv::Op op, Id type, const Words& before, const Words& operands);
  void Compute(const Words& key, Id id, size_t depth);
  size_t DepthOf(Id id) const;
  void Open(Id label);
  Region Close();
  void Add(spv::Op op, const Words& operands) {
    AddInstruction(&regions_.back().words, op, operands);
  }
  void Branch(Id label) { Add(spv::Op::OpBranch, {label}); }
  void StartBlock(Id label);
  void Append(const Region& region);
  // Closes the region of a loop, enters it by its header, and goes on behind it.
  void AppendLoop(Id header, Id merge);
  Id Scope(spv::Scope scope);
  Id CountInSubGroup(spv::GroupOperation which);

  SpirvModule& module_;
  const Id entry_;  // the first block
  Words parameters_, variables_;
  std::vector<Region> regions_;  // the open ones, from the outermost
  std::map<Words, Id> computed_;
  std::unordered_map<Id, size_t> depths_;  // of what is no constant: how many regions are around it
  std::unordered_map<Id, uint32_t> epochs_;  // of variables: how many stores there were
  uint32_t epoch_ = 0;                       // raised where any variable may have changed
};

}  // namespace tilewright::vulkan
