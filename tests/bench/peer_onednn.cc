#include <omp.h>

#include <algorithm>
#include <array>
#include <dnnl.hpp>
#include <unordered_map>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/bench/peers.h"

namespace tilewright::bench {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

memory::desc Describe(const memory::dims& dims, Tag tag) {
  return {dims, memory::data_type::f32, tag};
}
memory::desc Any(const memory::dims& dims) { return Describe(dims, Tag::any); }

// A primitive whose operands lie as it asked for.
class OneDnn : public Peer {
 public:
  OneDnn(std::string name, int threads) : name_(std::move(name)), threads_(threads) {}
  std::string name() const override { return "oneDNN " + name_; }
  bool direct() const override { return name_ != "winograd"; }
  void Run() override {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }
  std::vector<float> Result() override {
    std::vector<float> values(plain_result_.get_size() / sizeof(float));
    memory plain(plain_result_, engine_, values.data());
    memory& result = arguments_.at(DNNL_ARG_DST);
    dnnl::reorder(result, plain).execute(stream_, result, plain);
    stream_.wait();
    return values;
  }

 protected:
  void Set(int id, const memory::desc& wanted, const memory::desc& plain,
           const std::vector<float>& values) {
    memory given(plain, engine_, const_cast<float*>(values.data()));
    memory own(wanted, engine_);
    dnnl::reorder(given, own).execute(stream_, given, own);
    stream_.wait();
    arguments_.insert({id, own});
  }
  void SetResult(const memory::desc& own, const memory::desc& plain) {
    plain_result_ = plain;
    arguments_.insert({DNNL_ARG_DST, memory(own, engine_)});
  }
  void UseThreads() { omp_set_num_threads(threads_); }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::primitive primitive_;

 private:
  std::string name_;
  int threads_;
  std::unordered_map<int, memory> arguments_;
  memory::desc plain_result_;
};

// What convolutions share whatever their numbers are.
class OneDnnAnyConv : public OneDnn {
 protected:
  using Conv = dnnl::convolution_forward;
  using Type = memory::data_type;

  OneDnnAnyConv(std::string name, const Layer& l, int threads)
      : OneDnn(std::move(name), threads),
        x_{1, l.in, l.size, l.size},
        weights_{l.out, l.in, l.kernel, l.kernel},
        y_{1, l.out, l.out_size(), l.out_size()} {
    if (l.depthwise) weights_ = {l.out, 1, 1, l.kernel, l.kernel};
  }

  void Make(const Layer& l, const Operands& v, dnnl::algorithm algorithm,
            const std::array<Type, 4>& types, const dnnl::primitive_attr& attributes) {
    UseThreads();
    const auto any = [](const memory::dims& dims, Type type) {
      return memory::desc(dims, type, Tag::any);
    };
    const int64_t pad = l.kernel / 2;
    const Conv::desc desc(dnnl::prop_kind::forward_inference, algorithm, any(x_, types[0]),
                          any(weights_, types[1]), any({l.out}, types[2]), any(y_, types[3]),
                          {l.stride, l.stride}, {pad, pad}, {pad, pad});
    const Conv::primitive_desc made(desc, attributes, engine_);
    primitive_ = Conv(made);
    Set(DNNL_ARG_SRC, made.src_desc(), Describe(x_, Tag::nchw), v.x);
    Set(DNNL_ARG_WEIGHTS, made.weights_desc(),
        Describe(weights_, l.depthwise ? Tag::goihw : Tag::oihw), v.weights);
    Set(DNNL_ARG_BIAS, made.bias_desc(), Describe({l.out}, Tag::a), v.bias);
    SetResult(made.dst_desc(), Describe(y_, Tag::nchw));
  }

 private:
  memory::dims x_, weights_, y_;
};

class OneDnnConv final : public OneDnnAnyConv {
 public:
  OneDnnConv(const Layer& l, const Operands& v, bool winograd, int threads)
      : OneDnnAnyConv(winograd ? "winograd" : "direct", l, threads) {
    dnnl::post_ops post;
    post.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(post);
    Make(l, v,
         winograd ? dnnl::algorithm::convolution_winograd : dnnl::algorithm::convolution_direct,
         {Type::f32, Type::f32, Type::f32, Type::f32}, attributes);
  }
};

// u8 in and out, i8 weights, a scale for each channel: what oneDNN calls u8s8u8.
class OneDnnByteConv final : public OneDnnAnyConv {
 public:
  OneDnnByteConv(const Layer& l, const Operands& v, int threads)
      : OneDnnAnyConv("int8", l, threads) {
    constexpr int kPerChannel = 1 << 1;
    dnnl::primitive_attr attributes;
    attributes.set_output_scales(kPerChannel, v.scale);
    Make(l, v, dnnl::algorithm::convolution_direct, {Type::u8, Type::s8, Type::s32, Type::u8},
         attributes);
  }
};

// x and the result row-major, as they are between layers; weights packed.
class OneDnnMatmul final : public OneDnn {
 public:
  OneDnnMatmul(const Layer& l, const Operands& v, int threads) : OneDnn("matmul", threads) {
    UseThreads();
    const memory::desc x = Describe({l.m, l.k}, Tag::ab), y = Describe({l.m, l.n}, Tag::ab),
                       bias = Describe({1, l.n}, Tag::ab);
    const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(x, Any({l.k, l.n}), bias, y),
                                            engine_);
    primitive_ = dnnl::matmul(made);
    Set(DNNL_ARG_SRC, x, x, v.x);
    Set(DNNL_ARG_WEIGHTS, made.weights_desc(), Describe({l.k, l.n}, Tag::ab), v.weights);
    Set(DNNL_ARG_BIAS, bias, bias, v.bias);
    SetResult(y, y);
  }
};

class OneDnnInnerProduct final : public OneDnn {
 public:
  OneDnnInnerProduct(const Layer& l, const Operands& v, int threads)
      : OneDnn("inner product", threads) {
    using InnerProduct = dnnl::inner_product_forward;
    UseThreads();
    const memory::dims x = {l.m, l.k}, y = {l.m, l.n}, weights = {l.n, l.k};
    const InnerProduct::primitive_desc made(
        InnerProduct::desc(dnnl::prop_kind::forward_inference, Any(x), Any(weights), Any({l.n}),
                           Any(y)),
        engine_);
    primitive_ = InnerProduct(made);
    Set(DNNL_ARG_SRC, made.src_desc(), Describe(x, Tag::ab), v.x);
    // Ours is [k,n]: its transpose, described as [n,k].
    Set(DNNL_ARG_WEIGHTS, made.weights_desc(), Describe(weights, Tag::ba), v.weights);
    Set(DNNL_ARG_BIAS, made.bias_desc(), Describe({l.n}, Tag::a), v.bias);
    SetResult(made.dst_desc(), Describe(y, Tag::ab));
  }
};

// Shapes that an algorithm does not know are refused with an exception.
template <typename T, typename... Args>
void Add(Peers* peers, Args&&... args) {
  try {
    peers->push_back(std::make_unique<T>(std::forward<Args>(args)...));
  } catch (const dnnl::error&) {
  }
}

void AddOneDnn(const Layer& layer, const Operands& operands, int threads, Peers* peers) {
  if (layer.bytes_only) {
    Add<OneDnnByteConv>(peers, layer, operands, threads);
  } else if (layer.kind == Layer::Kind::kConv) {
    Add<OneDnnConv>(peers, layer, operands, /*winograd=*/false, threads);
    Add<OneDnnConv>(peers, layer, operands, /*winograd=*/true, threads);
  } else {
    Add<OneDnnMatmul>(peers, layer, operands, threads);
    Add<OneDnnInnerProduct>(peers, layer, operands, threads);
  }
}

// Lets oneDNN use no wider vectors than the target has.
void Limit(const target::Target& target) {
  const auto& has = target.machine.FeatureList();
  const bool vnni = std::find(has.begin(), has.end(), "avxvnni") != has.end();
  TW_CHECK(dnnl_set_max_cpu_isa(vnni ? dnnl_cpu_isa_avx2_vnni : dnnl_cpu_isa_avx2) == dnnl_success);
}

}  // namespace

std::optional<PeerLibrary> OpenOneDnn(const target::Target& target) {
  if (target.machine.vector_bytes < 64) Limit(target);
  const dnnl_version_t* v = dnnl_version();
  return PeerLibrary{support::StrCat("oneDNN ", v->major, ".", v->minor, ".", v->patch), AddOneDnn};
}

}  // namespace tilewright::bench
