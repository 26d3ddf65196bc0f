// Expression half of the reference interpreter: expressions are resolved once (variables to slots,
// buffers to storage) and then evaluated. Internal to compiler/ir. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/ir/ir.h"

namespace tilewright::ir {

union Cell {  // one lane; which member counts follows from the type
  int64_t i;
  double d;
};

// Which threads touched a cell since the last barrier: `epoch` counts barriers over the whole run.
struct Touch {
  int64_t epoch = -1;
  int32_t writer = -1, reader = -1;
  bool many_readers = false;
};

inline constexpr uint8_t kUnwritten = 0, kWritten = 1, kInFlight = 2;

struct BufferState {
  Buffer buffer;
  std::vector<int64_t> shape;
  std::vector<Cell> cells;
  std::vector<uint8_t> written;  // one flag per cell
  std::vector<Touch> touches;    // empty until threads that meet at barriers use the buffer
};

// An asynchronous store that has been issued.
struct PendingStore {
  BufferState* buffer;
  int64_t position;
  Cell value;
};
// The asynchronous stores of one thread.
struct AsyncQueue {
  std::vector<PendingStore> open;                 // not yet committed
  std::vector<std::vector<PendingStore>> groups;  // oldest first
};

// An expression with its variables and buffers resolved.
struct Code {
  ExprKind kind = ExprKind::kIntImm;
  DType dtype;
  DType operand;  // type of the first operand
  Intrinsic intrinsic = Intrinsic::kNone;
  int slot = -1;  // variable
  Cell constant{};
  BufferState* buffer = nullptr;
  std::vector<Code> args;
  std::unique_ptr<Code> mask;
};

// The declared regions of a block instance, as concrete boxes; accesses are checked against them on
// request.
struct ConcreteRegion {
  const BufferState* buffer;
  std::vector<int64_t> min, extent;
};

class ExprMachine {
 public:
  // Resolution. A symbol that was never declared is an error in the program: Failed() afterwards.
  int DeclareVar(const Var& var);
  BufferState* DeclareBuffer(const Buffer& buffer);
  Code Resolve(const Expr& e);
  BufferState* Find(const Buffer& buffer);

  int64_t EvalInt(const Code& code) { return EvalScalar(code).i; }
  bool EvalBool(const Code& code) { return EvalScalar(code).i != 0; }
  Cell EvalScalar(const Code& code);
  void EvalVector(const Code& code, Cell* out);  // code.dtype.lanes cells
  void SetVar(int slot, Cell value) { vars_[slot] = value; }
  Cell VarValue(int slot) const { return vars_[slot]; }

  // Storage for a buffer whose shape is known now: everything unwritten. False (and failed) when it
  // is too large.
  bool Allocate(BufferState* state, const std::vector<Code>& shape);
  // The position of one lane of an access, or -1 after reporting that it is out of bounds.
  int64_t Locate(const BufferState& state, const std::vector<std::vector<Cell>>& indices, int lane);
  int64_t LocateScalar(const BufferState& state, const std::vector<Code>& indices);

  // Threads that meet at barriers: accesses of thread `lane` (-1: no such threads) are checked
  // against those of others since the last barrier.
  void EnterLane(int32_t lane) { lane_ = lane; }
  void NextEpoch() { ++epoch_; }
  void Touched(BufferState* state, int64_t position, bool is_write);

  // Asynchronous stores. `UseQueue(nullptr)` is the queue outside of threads.
  void UseQueue(AsyncQueue* queue) { queue_ = queue == nullptr ? &main_queue_ : queue; }
  void Issue(BufferState* state, int64_t position, Cell value);
  void Commit();
  void Wait(int64_t pending);
  // Fails where stores of the current queue are in flight: to `state`, or (null) anywhere.
  void CheckLanded(const BufferState* state);

  void Fail(std::string slug, std::string detail);
  bool failed() const { return !slug_.empty(); }
  const std::string& slug() const { return slug_; }
  const std::string& detail() const { return detail_; }

  // Innermost last. Reads of a block with init may also go to what it writes.
  std::vector<const std::vector<ConcreteRegion>*> read_regions, write_regions;
  void CheckRegions(const std::vector<const std::vector<ConcreteRegion>*>& stack,
                    const BufferState& state, const std::vector<int64_t>& point, bool is_write);
  bool check_uninitialised = true;

 private:
  Cell EvalLoadLane(const Code& code, int64_t position);
  Cell EvalBinaryLane(const Code& code, Cell a, Cell b);
  Cell EvalCastLane(const Code& code, Cell a);
  void EvalLoadVector(const Code& code, Cell* out);
  void EvalDot4(const Code& code, Cell* out);
  void EvalDotTile(const Code& code, Cell* out);

  void CheckReadable(const BufferState& state, int64_t position);

  int32_t lane_ = -1;
  int64_t epoch_ = 0;
  AsyncQueue main_queue_;
  AsyncQueue* queue_ = &main_queue_;
  std::vector<Cell> vars_;
  std::unordered_map<const ExprNode*, int> slots_;
  std::unordered_map<const BufferNode*, std::unique_ptr<BufferState>> buffers_;
  std::string slug_, detail_;
};

}  // namespace tilewright::ir
