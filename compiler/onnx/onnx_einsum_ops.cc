// Einsum: operands are contracted from left to right, two at a time, each as one batched product.
#include <algorithm>
#include <cctype>
#include <map>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

// Labels are letters; the dimensions that an ellipsis stands for are numbers below them, counted
// from the right, as broadcasting aligns them.
using Labels = std::vector<int>;
constexpr int kMaxEllipsis = 16;

bool Has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

struct Term {
  ValueId value;
  Labels labels;
};

class EinsumBuilder {
 public:
  explicit EinsumBuilder(NodeReader& n) : n_(n), c_(n) {}

  Result Run() {
    TW_ASSIGN(std::string equation, n_.String("equation", ""));
    std::erase(equation, ' ');
    const size_t arrow = equation.find("->");
    TW_TRY(ReadTerms(equation.substr(0, arrow)));
    TW_TRY(ReadOutput(equation, arrow));
    for (Term& term : terms_) Diagonals(&term);
    TW_TRY(c_.status());
    TW_TRY(FindSizes());
    Term sum = terms_[0];
    for (size_t i = 1; i < terms_.size(); ++i) {
      Labels later = output_;
      for (size_t j = i + 1; j < terms_.size(); ++j) {
        later.insert(later.end(), terms_[j].labels.begin(), terms_[j].labels.end());
      }
      sum = Contracted(std::move(sum), terms_[i], later);
      TW_TRY(c_.status());
    }
    return c_.Done(Ordered(SummedTo(std::move(sum), output_, {}), output_));
  }

 private:
  absl::StatusOr<Labels> Parse(const std::string& text, int64_t ellipsis) {
    Labels labels;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text.compare(i, 3, "...") == 0) {
        for (int64_t d = ellipsis; d-- > 0;) labels.push_back(static_cast<int>(d));
        i += 2;
      } else if (std::isalpha(static_cast<unsigned char>(text[i])) != 0) {
        labels.push_back(text[i]);
      } else {
        return n_.Error("attribute", StrCat("expected letters and ellipses in the equation, found ",
                                            support::Quote(text)));
      }
    }
    return labels;
  }

  absl::Status ReadTerms(const std::string& text) {
    size_t at = 0;
    for (int i = 0; at <= text.size(); ++i) {
      const size_t comma = std::min(text.find(',', at), text.size());
      const std::string part = text.substr(at, comma - at);
      at = comma + 1;
      const ValueId value = c_.Input(i);
      TW_TRY(c_.status());
      const size_t dots = part.find("...");
      const int64_t letters =
          static_cast<int64_t>(part.size()) - (dots == std::string::npos ? 0 : 3);
      const int64_t open = c_.Rank(value) - letters;
      const bool fits = dots == std::string::npos ? open == 0 : open >= 0 && open <= kMaxEllipsis;
      if (!fits) {
        return n_.Error("shape",
                        StrCat("expected an operand with the dimensions of ", support::Quote(part),
                               ", found ", op::ToText(c_.TypeOf(value))));
      }
      if (dots != std::string::npos) ellipsis_ = std::max(ellipsis_, open);
      TW_ASSIGN(Labels labels, Parse(part, open));
      terms_.push_back({value, std::move(labels)});
    }
    if (static_cast<int>(terms_.size()) == n_.num_inputs()) return absl::OkStatus();
    return n_.Error("inputs", StrCat("expected ", terms_.size(), " operands as in the equation, ",
                                     "found ", n_.num_inputs()));
  }

  // Without an arrow: what an ellipsis stands for, then the labels that occur once, sorted.
  absl::Status ReadOutput(const std::string& equation, size_t arrow) {
    std::map<int, int> uses;
    for (const Term& term : terms_) {
      for (int label : term.labels) ++uses[label];
    }
    if (arrow != std::string::npos) {
      TW_ASSIGN(output_, Parse(equation.substr(arrow + 2), ellipsis_));
    } else {
      for (int64_t d = ellipsis_; d-- > 0;) output_.push_back(static_cast<int>(d));
      for (const auto& [label, count] : uses) {
        if (label >= kMaxEllipsis && count == 1) output_.push_back(label);
      }
    }
    for (int label : output_) {
      if (uses.count(label) > 0 && std::count(output_.begin(), output_.end(), label) == 1) continue;
      return n_.Error("attribute", "expected each output label once, and in an operand");
    }
    return absl::OkStatus();
  }

  // A label twice in one operand is its diagonal.
  void Diagonals(Term* term) {
    for (size_t i = 0; c_.ok() && i < term->labels.size(); ++i) {
      for (size_t j = i + 1; j < term->labels.size(); ++j) {
        if (term->labels[i] != term->labels[j]) continue;
        *term = Diagonal(*term, i, j);
        j = i;
        if (!c_.ok()) return;
      }
    }
  }

  Term Diagonal(const Term& term, size_t i, size_t j) {
    std::vector<int64_t> perm;
    std::vector<op::Dim> shape = c_.Dims(term.value), front;
    if (!shape[i].is_constant()) {
      return {c_.Fail("open_size", StrCat("expected a diagonal of fixed size, found ",
                                          shape[i].ToText(), kGiveNumbers)),
              term.labels};
    }
    if (shape[i] != shape[j]) return {c_.Fail("shape", "expected a square"), term.labels};
    Labels labels;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (d == i || d == j) continue;
      perm.push_back(static_cast<int64_t>(d));
      front.push_back(shape[d]);
      labels.push_back(term.labels[d]);
    }
    const int64_t size = shape[i].value(), axis = static_cast<int64_t>(front.size());
    perm.push_back(static_cast<int64_t>(i));
    perm.push_back(static_cast<int64_t>(j));
    std::vector<op::Dim> flat = front;
    flat.push_back(size * size);
    const ValueId square = c_.ReshapeTo(c_.Transpose(term.value, perm), flat);
    labels.push_back(term.labels[i]);
    return {size == 1 ? square : c_.Slice(square, axis, 0, size, size + 1), labels};
  }

  absl::Status FindSizes() {
    for (const Term& term : terms_) {
      for (size_t d = 0; d < term.labels.size(); ++d) {
        const op::Dim one(1), size = c_.Dims(term.value)[d];
        op::Dim& known = sizes_.try_emplace(term.labels[d], size).first->second;
        if (known == one) known = size;
        // Open sizes are settled with the rest of the graph.
        if (size != known && size != one && (size - known).is_constant()) {
          return n_.Error("shape", "expected one size per label of the equation, found several");
        }
      }
    }
    return absl::OkStatus();
  }

  op::Dim SizeOf(const Term& term, int label) const {
    const auto at = std::find(term.labels.begin(), term.labels.end(), label);
    return c_.Dims(term.value)[at - term.labels.begin()];
  }

  // Without the dimensions that neither of the two lists names.
  Term SummedTo(Term term, const Labels& kept, const Labels& more) {
    if (!c_.ok()) return term;
    std::vector<int64_t> axes;
    Labels left;
    for (size_t d = 0; d < term.labels.size(); ++d) {
      if (Has(kept, term.labels[d]) || Has(more, term.labels[d])) {
        left.push_back(term.labels[d]);
      } else {
        axes.push_back(static_cast<int64_t>(d));
      }
    }
    if (!axes.empty()) term.value = c_.Reduce("sum", term.value, axes, false);
    term.labels = left;
    return term;
  }

  ValueId Ordered(const Term& term, const Labels& order) {
    std::vector<int64_t> perm;
    for (int label : order) {
      perm.push_back(std::find(term.labels.begin(), term.labels.end(), label) -
                     term.labels.begin());
    }
    return c_.ok() ? c_.Transpose(term.value, perm) : kNone;
  }

  Term Contracted(Term a, Term b, const Labels& later) {
    a = SummedTo(std::move(a), later, b.labels);
    b = SummedTo(std::move(b), later, a.labels);
    if (!c_.ok()) return a;
    Labels batch, inner, left, right;
    bool even = true;  // no dimension of 1 against a longer one
    for (int label : a.labels) {
      const bool both = Has(b.labels, label);
      (!both ? left : Has(later, label) ? batch : inner).push_back(label);
      even = even && (!both || SizeOf(a, label) == SizeOf(b, label));
    }
    for (int label : b.labels) {
      if (!Has(a.labels, label)) right.push_back(label);
    }
    const ir::DType type = c_.TypeOf(a.value).dtype;
    Labels all = batch;
    all.insert(all.end(), left.begin(), left.end());
    all.insert(all.end(), right.begin(), right.end());
    const bool product = even && !inner.empty() && (type.is_float() || type == ir::kI32);
    if (product) return {Product(a, b, batch, inner, left, right), all};
    // Elementwise, all dimensions side by side.
    all.insert(all.end(), inner.begin(), inner.end());
    Term sum{c_.Mul(Aligned(a, all), Aligned(b, all)), all};
    return SummedTo(std::move(sum), later, {});
  }

  ValueId Aligned(const Term& term, const Labels& all) {
    Labels own;
    std::vector<op::Dim> shape;
    for (int label : all) {
      const bool has = Has(term.labels, label);
      if (has) own.push_back(label);
      shape.push_back(has ? SizeOf(term, label) : op::Dim(1));
    }
    return c_.ReshapeTo(Ordered(term, own), shape);
  }

  ValueId Product(const Term& a, const Term& b, const Labels& batch, const Labels& inner,
                  const Labels& left, const Labels& right) {
    auto sizes = [&](const Term& term, const Labels& labels) {
      op::Dim product = 1;
      for (int label : labels) product = product * SizeOf(term, label);
      return product;
    };
    auto joined = [](Labels x, const Labels& y, const Labels& z) {
      x.insert(x.end(), y.begin(), y.end());
      x.insert(x.end(), z.begin(), z.end());
      return x;
    };
    const op::Dim batches = sizes(a, batch), terms = sizes(a, inner);
    std::vector<op::Dim> of_a = {sizes(a, left), terms}, of_b = {terms, sizes(b, right)};
    if (!batch.empty()) {
      of_a.insert(of_a.begin(), batches);
      of_b.insert(of_b.begin(), batches);
    }
    const ValueId x = c_.ReshapeTo(Ordered(a, joined(batch, left, inner)), of_a);
    const ValueId y = c_.ReshapeTo(Ordered(b, joined(batch, inner, right)), of_b);
    std::vector<op::Dim> shape;
    for (int label : batch) shape.push_back(SizeOf(a, label));
    for (int label : left) shape.push_back(SizeOf(a, label));
    for (int label : right) shape.push_back(SizeOf(b, label));
    return c_.ReshapeTo(c_.MatMul(x, y), shape);
  }

  NodeReader& n_;
  Composer c_;
  std::vector<Term> terms_;
  Labels output_;
  std::map<int, op::Dim> sizes_;
  int64_t ellipsis_ = 0;
};

}  // namespace

Result ImportEinsum(NodeReader& n) { return EinsumBuilder(n).Run(); }

}  // namespace tilewright::graph::onnx
