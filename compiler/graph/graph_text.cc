// The text form of the graph IR: printer and parser. The grammar is in README.md.
#include <cctype>
#include <optional>
#include <set>

#include "compiler/graph/graph.h"
#include "compiler/graph/rewrite_util.h"
#include "compiler/ir/text_words.h"
#include "compiler/op/empty.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

using support::StrCat;

constexpr size_t kInlineBytes = 64;
constexpr size_t kMaxList = 1 << 16;
constexpr std::string_view kDigestPrefix = "sha256:", kHexPrefix = "hex:";

// ------------------------------------------------------------ printer

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\' || c < 0x20 || c == 0x7f) {
      out += "\\x";
      out += support::HexEncode(std::string_view(reinterpret_cast<const char*>(&c), 1));
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

std::string_view InputWord(const Value& value) {
  if (value.cold) return "cold_weight";
  return value.weight ? "weight" : "input";
}

class Printer {
 public:
  Printer(const Graph& graph, bool names, std::string indent)
      : g_(graph), names_(names), indent_(std::move(indent)), number_(graph.values.size(), -1) {}

  std::string Run() {
    Line(StrCat("graph ", names_ ? Quoted(g_.name) + " " : "", "{"));
    for (ValueId id : g_.inputs) {
      Line(StrCat("  ", InputWord(g_.values[id]), " ", Define(id)));
    }
    for (size_t id = 0; id < g_.values.size(); ++id) {
      const Value& value = g_.values[id];
      if (value.constant == nullptr) continue;
      const std::string_view bytes = value.constant->view();
      Line(StrCat("  constant ", Define(static_cast<ValueId>(id)), " = ",
                  bytes.size() <= kInlineBytes ? StrCat(kHexPrefix, support::HexEncode(bytes))
                                               : StrCat(kDigestPrefix, support::Sha256Hex(bytes))));
    }
    for (const Node& node : g_.nodes) PrintNode(node);
    std::vector<std::string> outputs;
    for (ValueId id : g_.outputs) outputs.push_back(Use(id));
    Line(StrCat("  output ", support::Join(outputs, ", ")));
    for (const SizeCheck& check : g_.checks) {
      Line(
          StrCat("  check ", op::DimsText(check.expected), names_ ? " " + Quoted(check.what) : ""));
    }
    out_ += indent_ + "}";
    return out_;
  }

 private:
  void Line(std::string_view text) { out_ += StrCat(indent_, text, "\n"); }
  std::string Define(ValueId id) {
    number_[id] = next_++;
    const Value& value = g_.values[id];
    return StrCat("%", number_[id], names_ ? " " + Quoted(value.name) : "", ": ",
                  op::ToText(value.type));
  }
  std::string Use(ValueId id) const { return StrCat("%", number_[id]); }

  void PrintNode(const Node& node) {
    std::vector<std::string> args, results, attrs;
    for (ValueId id : node.inputs) args.push_back(Use(id));
    for (ValueId id : node.outputs) results.push_back(Define(id));
    for (const auto& [key, value] : node.attrs) attrs.push_back(StrCat(key, "=", AttrText(value)));
    std::string line = StrCat("  ", support::Join(results, ", "), " = ", node.op, "(",
                              support::Join(args, ", "), ")");
    if (!attrs.empty()) line += StrCat(" {", support::Join(attrs, ", "), "}");
    if (names_) line += " " + Quoted(node.name);
    if (node.body != nullptr) {
      std::string body = Printer(*node.body, names_, indent_ + "  ").Run();
      line += " " + body.substr(indent_.size() + 2);
    }
    Line(line);
  }

  const Graph& g_;
  const bool names_;
  const std::string indent_;
  std::string out_;
  std::vector<int> number_;
  int next_ = 0;
};

// ------------------------------------------------------------ parser

class Parser {
 public:
  Parser(std::string_view text,
         const std::map<std::string, std::shared_ptr<const ConstantData>>& constants)
      : text_(text), constants_(constants) {}

  absl::StatusOr<Graph> Whole() {
    TW_ASSIGN(Graph graph, ParseBody(0));
    SkipSpace();
    if (at_ < text_.size()) return Error("trailing", "expected the end of the text");
    return graph;
  }

 private:
  absl::Status Error(std::string_view reason, std::string_view expected) {
    int line = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) line += text_[i] == '\n';
    SkipSpace();
    return support::InvalidArgument(
        StrCat("graph.text.", reason),
        StrCat("line ", line, ": ", expected, ", found ",
               at_ < text_.size() ? support::Quote(text_.substr(at_, 20)) : "the end"));
  }
  void SkipSpace() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool Accept(std::string_view token) {
    SkipSpace();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  absl::Status Expect(std::string_view token) {
    if (Accept(token)) return absl::OkStatus();
    return Error("syntax", StrCat("expected ", support::Quote(token)));
  }
  std::string Word() {
    SkipSpace();
    const size_t start = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) {
      ++at_;
    }
    return std::string(text_.substr(start, at_ - start));
  }
  // Characters of a number: digits, sign, point, exponent, inf, nan.
  std::string Number() {
    SkipSpace();
    const size_t start = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
            std::string_view("+-.").find(text_[at_]) != std::string_view::npos)) {
      ++at_;
    }
    return std::string(text_.substr(start, at_ - start));
  }
  absl::StatusOr<int64_t> Int() {
    std::optional<int64_t> value = support::ParseInt64(Number());
    if (!value) return Error("number", "expected an integer");
    return *value;
  }
  absl::StatusOr<std::string> String() {
    TW_TRY(Expect("\""));
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] != '\\') {
        out += text_[at_++];
        continue;
      }
      std::optional<std::string> byte;
      if (text_.substr(at_, 2) == "\\x") byte = support::HexDecode(text_.substr(at_ + 2, 2));
      if (!byte || byte->size() != 1) return Error("escape", "expected \\x and two digits");
      out += *byte;
      at_ += 4;
    }
    TW_TRY(Expect("\""));
    return out;
  }
  absl::StatusOr<op::Dim> Dimension() {
    const size_t start = at_;
    const absl::StatusOr<int64_t> number = Int();
    SkipSpace();
    if (number.ok() && at_ < text_.size() && (text_[at_] == ',' || text_[at_] == ']')) {
      return op::Dim(*number);
    }
    at_ = start;
    std::string_view rest;
    absl::StatusOr<op::Dim> dim = op::Dim::Parse(text_.substr(at_), &rest);
    if (!dim.ok()) return Error("number", "expected a number or a dimension");
    at_ = text_.size() - rest.size();
    return dim;
  }
  absl::Status Type(Value* value) {
    op::TensorType& type = value->type;
    if (!ir::ParseType(Word(), &type.dtype) || type.dtype.is_vector()) {
      return Error("type", "expected an element type");
    }
    TW_TRY(Expect("["));
    if (!Accept("]")) {
      do {
        TW_ASSIGN(op::Dim dim, Dimension());
        if (type.shape.size() >= 64) return Error("type", "expected fewer dimensions");
        type.shape.push_back(std::move(dim));
      } while (Accept(","));
      TW_TRY(Expect("]"));
    }
    return op::CheckShape(type);
  }
  absl::StatusOr<op::AttrValue> Attr() {
    SkipSpace();
    if (at_ < text_.size() && text_[at_] == '"') {
      TW_ASSIGN(std::string text, String());
      return op::AttrValue(text);
    }
    if (Accept("f[")) {
      std::vector<double> values;
      if (Accept("]")) return op::AttrValue(values);
      do {
        std::optional<double> value = support::ParseDouble(Number());
        if (!value || values.size() > kMaxList) return Error("number", "expected a number");
        values.push_back(*value);
      } while (Accept(","));
      TW_TRY(Expect("]"));
      return op::AttrValue(values);
    }
    if (Accept("[")) {
      std::vector<op::Dim> values;
      if (Accept("]")) return op::ShapeAttr(values);
      do {
        TW_ASSIGN(op::Dim value, Dimension());
        if (values.size() > kMaxList) return Error("number", "expected a shorter list");
        values.push_back(std::move(value));
      } while (Accept(","));
      TW_TRY(Expect("]"));
      return op::ShapeAttr(values);
    }
    const std::string number = Number();
    if (std::optional<int64_t> i = support::ParseInt64(number)) return op::AttrValue(*i);
    std::optional<double> d = support::ParseDouble(number);
    if (!d) return Error("number", "expected an attribute value");
    return op::AttrValue(*d);
  }

  // `%N ["name"] : type`; the number must be the next one of its graph.
  absl::StatusOr<ValueId> Define(Graph* graph, std::set<std::string>* names) {
    TW_TRY(Expect("%"));
    TW_ASSIGN(int64_t number, Int());
    if (number != static_cast<int64_t>(graph->values.size())) {
      return Error("value", StrCat("expected the definition of %", graph->values.size()));
    }
    Value value;
    SkipSpace();
    if (at_ < text_.size() && text_[at_] == '"') {
      TW_ASSIGN(value.name, String());
    } else {
      value.name = StrCat("v", number);
    }
    if (!names->insert(value.name).second) return Error("name", "expected a new name");
    TW_TRY(Expect(":"));
    TW_TRY(Type(&value));
    graph->values.push_back(std::move(value));
    return static_cast<ValueId>(number);
  }
  absl::StatusOr<ValueId> Use(const Graph& graph) {
    TW_TRY(Expect("%"));
    TW_ASSIGN(int64_t number, Int());
    if (number < 0 || number >= static_cast<int64_t>(graph.values.size())) {
      return Error("value", "expected a value that is defined above");
    }
    return static_cast<ValueId>(number);
  }
  absl::Status ParseConstant(Graph* graph, std::set<std::string>* names) {
    TW_ASSIGN(ValueId id, Define(graph, names));
    Value& value = graph->values[id];
    if (!value.type.fixed()) return Error("constant", "expected fixed dimensions of a constant");
    TW_TRY(Expect("="));
    if (Accept(kHexPrefix)) {
      const bool empty = value.type.bytes() == 0;  // the next word is no part of it
      std::optional<std::string> bytes = support::HexDecode(empty ? "" : Word());
      if (!bytes || static_cast<int64_t>(bytes->size()) != value.type.bytes()) {
        return Error("constant", StrCat("expected ", value.type.bytes(), " bytes in hexadecimal"));
      }
      value.constant = std::make_shared<ConstantData>(*std::move(bytes));
      return absl::OkStatus();
    }
    TW_TRY(Expect(kDigestPrefix));
    auto it = constants_.find(Word());
    if (it == constants_.end() || it->second->size() != value.type.bytes()) {
      return Error("constant", "expected the digest of a constant that was given");
    }
    value.constant = it->second;
    return absl::OkStatus();
  }
  absl::Status ParseNode(Graph* graph, std::set<std::string>* names, int depth) {
    Node node;
    const ValueId first_output = static_cast<ValueId>(graph->values.size());
    do {
      TW_ASSIGN(ValueId id, Define(graph, names));
      node.outputs.push_back(id);
    } while (Accept(","));
    TW_TRY(Expect("="));
    node.op = Word();
    TW_TRY(Expect("("));
    if (!Accept(")")) {
      do {
        TW_ASSIGN(ValueId id, Use(*graph));
        if (id >= first_output) return Error("value", "expected a value that is defined above");
        node.inputs.push_back(id);
      } while (Accept(","));
      TW_TRY(Expect(")"));
    }
    if (Accept("{")) {
      do {
        const std::string key = Word();
        TW_TRY(Expect("="));
        TW_ASSIGN(op::AttrValue value, Attr());
        if (key.empty() || !node.attrs.emplace(key, value).second) {
          return Error("attribute", "expected a new attribute name");
        }
      } while (Accept(","));
      TW_TRY(Expect("}"));
    }
    SkipSpace();
    if (at_ < text_.size() && text_[at_] == '"') {
      TW_ASSIGN(node.name, String());
    } else {
      node.name = StrCat("n", graph->nodes.size());
    }
    if (node.op == kFusedOp) {
      TW_ASSIGN(Graph body, ParseBody(depth + 1));
      node.body = std::make_shared<const Graph>(std::move(body));
    }
    graph->nodes.push_back(std::move(node));
    return absl::OkStatus();
  }
  // `check [2,3] ["text"]`, a line each.
  absl::Status ParseChecks(Graph* graph) {
    while (Accept("check")) {
      SizeCheck check;
      TW_TRY(Expect("["));
      do {
        TW_ASSIGN(op::Dim size, Dimension());
        check.expected.push_back(std::move(size));
        if (check.expected.size() > 64) return Error("number", "expected a shorter list");
      } while (Accept(","));
      TW_TRY(Expect("]"));
      SkipSpace();
      if (at_ < text_.size() && text_[at_] == '"') {
        TW_ASSIGN(check.what, String());
      }
      graph->checks.push_back(std::move(check));
      if (graph->checks.size() > graph->outputs.size()) {
        return Error("check", "expected an output for each check");
      }
    }
    return absl::OkStatus();
  }
  absl::StatusOr<Graph> ParseBody(int depth) {
    if (depth > 1) return Error("nesting", "expected no fused node inside a fused body");
    Graph graph;
    std::set<std::string> names;
    TW_TRY(Expect("graph"));
    SkipSpace();
    if (at_ < text_.size() && text_[at_] == '"') {
      TW_ASSIGN(graph.name, String());
    }
    TW_TRY(Expect("{"));
    while (true) {
      SkipSpace();
      if (at_ < text_.size() && text_[at_] == '%') {
        TW_TRY(ParseNode(&graph, &names, depth));
        continue;
      }
      const std::string word = Word();
      if (word == "input" || word == "weight" || word == "cold_weight") {
        TW_ASSIGN(ValueId id, Define(&graph, &names));
        graph.values[id].weight = word != "input";
        graph.values[id].cold = word == "cold_weight";
        graph.inputs.push_back(id);
      } else if (word == "constant") {
        TW_TRY(ParseConstant(&graph, &names));
      } else if (word == "output") {
        do {
          TW_ASSIGN(ValueId id, Use(graph));
          graph.outputs.push_back(id);
        } while (Accept(","));
        TW_TRY(ParseChecks(&graph));
        TW_TRY(Expect("}"));
        return graph;
      } else {
        return Error("syntax", "expected input, weight, cold_weight, constant, a node or output");
      }
    }
  }

  std::string_view text_;
  const std::map<std::string, std::shared_ptr<const ConstantData>>& constants_;
  size_t at_ = 0;
};

}  // namespace

std::string AttrText(const op::AttrValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return StrCat(*i);
  if (const auto* d = std::get_if<double>(&value)) return ir::DoubleText(*d);
  if (const auto* s = std::get_if<std::string>(&value)) return Quoted(*s);
  if (const auto* v = std::get_if<std::vector<int64_t>>(&value)) {
    return StrCat("[", support::Join(*v, ","), "]");
  }
  if (const auto* v = std::get_if<std::vector<op::Dim>>(&value)) return op::DimsText(*v);
  std::vector<std::string> parts;
  for (double d : std::get<std::vector<double>>(value)) parts.push_back(ir::DoubleText(d));
  return StrCat("f[", support::Join(parts, ","), "]");
}

std::string Print(const Graph& graph) { return Printer(graph, true, "").Run() + "\n"; }

std::string CanonicalText(const Graph& graph) { return Printer(graph, false, "").Run() + "\n"; }

absl::StatusOr<Graph> ParseGraph(
    std::string_view text,
    const std::map<std::string, std::shared_ptr<const ConstantData>>& constants) {
  TW_ASSIGN(Graph graph, Parser(text, constants).Whole());
  TW_TRY(Verify(graph));
  return graph;
}

}  // namespace tilewright::graph
