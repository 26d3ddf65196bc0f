// The text of custom operators: what a file of definitions says, parsed and printed. The grammar
// and a worked example are in deploy/docs/custom_operators.md. Definitions are immutable values;
// pure functions; thread-safe. The text may come from anybody: every limit is checked here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/op/op.h"

namespace tilewright::op::custom {

inline constexpr size_t kMaxText = 256 << 10;  // bytes of a file
inline constexpr size_t kMaxDefinitions = 256;
inline constexpr int64_t kMaxNodes = 4096;   // of the expressions of one definition
inline constexpr int kMaxDepth = 64;         // of parentheses
inline constexpr int kMaxTree = 256;         // operations above each other: a + b + c is two
inline constexpr size_t kMaxNames = 64;      // operands, results, stages, attributes: of each
inline constexpr size_t kMaxAttribute = 64;  // numbers in a list, bytes of a text

enum class NodeKind : uint8_t {
  kInt,        // integer
  kFloat,      // number
  kBool,       // integer 0 or 1
  kText,       // name: the text itself
  kName,       // an axis, a size or an attribute
  kAccess,     // name[args]: an element of an operand, of a stage or of an attribute
  kOperation,  // name: the symbol; one argument (- and !) or two
  kCall,       // name(args): a function or a cast
  kReduce      // name(axes, args[0]): sum, prod, max or min over axes, argmax or argmin along one
};

struct Node;
using NodeRef = std::shared_ptr<const Node>;
struct Axis {
  std::string name;
  NodeRef extent = nullptr;  // null: the axis of a result, whose size the result's shape states
};
struct Node {
  NodeKind kind = NodeKind::kInt;
  std::string name = {};
  int64_t integer = 0;
  double number = 0;
  std::vector<NodeRef> args = {};
  bool leading = false;  // kAccess: the index begins with `..`
  std::vector<Axis> axes = {};
  int depth = 1;  // of the tree; the parser sets it
};
NodeRef IntNode(int64_t value);  // negative: the negation of a literal
NodeRef FloatNode(double value);

// x: T[.., n, 4]. A result has the same form.
struct Operand {
  std::string name, type;
  bool leading = false;  // any number of dimensions in front, the same for all that have them
  std::vector<NodeRef> dims = {};
};
struct TypeVariable {
  std::string name;
  std::vector<ir::DType> types;
};
enum class AttributeKind : uint8_t { kInt, kFloat, kInts, kFloats, kString };
struct Attribute {
  std::string name;
  AttributeKind kind = AttributeKind::kInt;
  std::optional<AttrValue> fallback = {};  // none: the node must have the attribute
};
// name[.., i, j] = value. A stage of a result's name computes that result, any other one is a
// tensor between: its axes state their sizes.
struct Stage {
  std::string name;
  bool leading = false;
  std::vector<Axis> axes = {};
  NodeRef value = nullptr;
};
struct Definition {
  std::string domain, op_type;
  std::vector<Operand> operands, results;
  std::vector<TypeVariable> types = {};
  std::vector<Attribute> attributes = {};
  std::vector<NodeRef> requirements = {};
  std::vector<Stage> stages = {};  // in the order of computation; each result is one of them
  // Of an external kernel, which has one result: the file name of a shared library, and its
  // function (deploy/runtime/external_kernel.h). Stages are its reference then, and may be missing.
  std::string library = {}, function = {};
};

// The definitions of a text. INVALID_ARGUMENT op.custom.syntax, .name, .limit, with line and
// column.
absl::StatusOr<std::vector<Definition>> Parse(std::string_view text);
// Whether a reduction has the position of its largest or smallest value as result.
bool FindsPosition(std::string_view reduction);
// One expression and nothing else.
absl::StatusOr<NodeRef> ParseExpression(std::string_view text);

// The definition for a node with these attributes: they are numbers and texts in its expressions
// now. INVALID_ARGUMENT op.custom.attribute for others than it states.
absl::StatusOr<Definition> SetAttributes(Definition definition, const Attrs& given);

// The lines that an external kernel gets: "name = value" of each attribute, in the definition's
// order, defaults included.
absl::StatusOr<std::string> AttributesText(const Definition& definition, const Attrs& given);

// On one line. Parse of it gives an equal definition, and printing that gives the same text.
std::string Print(const Definition& definition);
std::string Print(const NodeRef& node);
std::string_view AttributeKindText(AttributeKind kind);

}  // namespace tilewright::op::custom
