#include "compiler/ir/bind_sizes.h"

#include <memory>

#include "compiler/ir/visit.h"

namespace tilewright::ir {
namespace {

class Binder final : public Rewriter {
 public:
  void Set(const Var& size, int64_t value) { values_[size.get()] = Int(value, size->dtype); }
  bool binds() const { return !values_.empty(); }

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
      binder.Set(size, value->second);
    } else {
      bound.size_params.push_back(size);
    }
  }
  if (!binder.binds()) return f;
  for (Buffer& b : bound.params) b = binder.RewriteBuffer(b);
  for (Buffer& b : bound.allocs) b = binder.RewriteBuffer(b);
  if (bound.body != nullptr) bound.body = binder.RewriteStmt(bound.body);
  return bound;
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
