// What the sequence under an input has: a list of tensors, or rows of one tensor where only a run
// tells how many (Container). Part of the import; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "compiler/onnx/onnx_composer.h"

namespace tilewright::graph::onnx {

inline constexpr int64_t kMaxItems = 4096;  // of a list

class SequenceReader {
 public:
  // `c` and `sequence` outlive it.
  SequenceReader(Composer& c, const Container& sequence) : c_(c), sequence_(sequence) {}
  // Notes an error (graph.onnx.type) where the input is no sequence; the sequence is empty then.
  SequenceReader(Composer& c, int input);

  // Whether each tensor is a value of its own.
  bool is_list() const { return sequence_.rows == kNone || !sequence_.items.empty(); }
  // REQUIRES: is_list().
  const std::vector<ValueId>& items() const { return sequence_.items; }
  op::Dim length() const;
  // All along a new first dimension. Notes an error where there is none, or their types differ.
  ValueId Rows() const;
  // The tensor at this position, an integer of the graph with one element. From the end if it is
  // negative; outside of the sequence it is the first or the last.
  ValueId At(ValueId position) const;

 private:
  Composer& c_;
  const Container& sequence_;
};

// The sequence that has, of each tensor of `a` and of `b`, the one that `choose` gives; of other
// lengths, as many rows as a run finds for output `output`. Notes an error where they are no
// sequences (graph.onnx.type).
using ChooseTensor = std::function<ValueId(ValueId a, ValueId b)>;
ValueId ChosenSequence(Composer& c, ValueId a, ValueId b, const ChooseTensor& choose, int output);
// Whether each item is there, a list of bools. REQUIRES: sequence.there is not empty.
ValueId FlagsOf(Composer& c, const Container& sequence);
// A tensor as the only entry along a new dimension.
ValueId AsRow(Composer& c, ValueId x, int64_t axis = 0);
// The rows one behind the other along an axis that they have.
ValueId JoinedRows(Composer& c, ValueId rows, int64_t axis);
// The rows of which `there`, a list of bools, holds: as many as a run finds for output `output`.
ValueId RowsThere(Composer& c, ValueId rows, ValueId there, int output);
// The sequence of these rows (graph.onnx.type without any).
Result SequenceOfRows(Composer& c, ValueId rows);
// The sequence of a list (graph.onnx.too_large).
Result SequenceOfList(NodeReader& n, std::vector<ValueId> items);

}  // namespace tilewright::graph::onnx
