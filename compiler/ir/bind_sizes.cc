#include "compiler/ir/bind_sizes.h"

#include <memory>

#include "compiler/ir/visit.h"

namespace tilewright::ir {
namespace {

class Binder final : public Rewriter {
 public:
  void Set(const Var& size, const Expr& value) { values_[size.get()] = value; }
  bool binds() const { return !values_.empty(); }
  void Rewrite(Function* f) {
    for (Buffer& b : f->params) b = RewriteBuffer(b);
    for (Buffer& b : f->allocs) b = RewriteBuffer(b);
    if (f->body != nullptr) f->body = RewriteStmt(f->body);
  }

  Expr RewriteExpr(const Expr& e) override {
    const auto value = values_.find(e.get());
    return value != values_.end() ? value->second : RewriteChildren(e);
  }
  // Each buffer once, so that all that use it still share it.
  Buffer RewriteBuffer(const Buffer& b) override {
    const auto [known, fresh] = buffers_.try_emplace(b.get(), b);
    if (!fresh) return known->second;
    std::vector<Expr> shape;
    for (const Expr& extent : b->shape) shape.push_back(RewriteExpr(extent));
    if (shape == b->shape) return b;
    auto node = std::make_shared<BufferNode>(*b);
    node->shape = std::move(shape);
    return buffers_[b.get()] = std::move(node);
  }

 private:
  VarMap values_;
  BufferMap buffers_;
};

}  // namespace

Function BindSizes(const Function& f, const std::map<std::string, int64_t>& sizes) {
  Binder binder;
  Function bound = f;
  bound.size_params.clear();
  for (const Var& size : f.size_params) {
    const auto value = sizes.find(size->name);
    if (value != sizes.end()) {
      binder.Set(size, Int(value->second, size->dtype));
    } else {
      bound.size_params.push_back(size);
    }
  }
  if (!binder.binds()) return f;
  binder.Rewrite(&bound);
  return bound;
}

Function WithSizeParams(const Function& f, const std::vector<Var>& sizes) {
  Binder binder;
  Function renamed = f;
  renamed.size_params = sizes;
  for (size_t i = 0; i < sizes.size(); ++i) binder.Set(f.size_params[i], sizes[i]);
  binder.Rewrite(&renamed);
  return renamed;
}

std::vector<std::pair<Var, int64_t>> SizeValues(const Function& f,
                                                const std::map<std::string, int64_t>& sizes) {
  std::vector<std::pair<Var, int64_t>> values;
  for (const Var& size : f.size_params) {
    const auto value = sizes.find(size->name);
    if (value != sizes.end()) values.emplace_back(size, value->second);
  }
  return values;
}

}  // namespace tilewright::ir
