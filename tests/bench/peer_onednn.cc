#include "tests/bench/peer_onednn.h"

#include <cstring>
#include <dnnl.hpp>
#include <unordered_map>
#include <vector>

namespace tilewright::bench {

using dnnl::memory;
using Conv = dnnl::convolution_forward;

struct OneDnnConv::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  Conv::primitive_desc desc;
  Conv primitive;
  std::unordered_map<int, memory> arguments;
  memory::desc x, weights, bias, y;  // of the caller

  // By way of the plain layout: oneDNN packs weights for Winograd from no other.
  void Set(int id, const memory::desc& from, memory::format_tag plain, const float* values) {
    memory given(from, engine, const_cast<float*>(values));
    memory middle(memory::desc(from.dims(), memory::data_type::f32, plain), engine);
    dnnl::reorder(given, middle).execute(stream, given, middle);
    dnnl::reorder(middle, arguments.at(id)).execute(stream, middle, arguments.at(id));
    stream.wait();
  }
};

OneDnnConv::OneDnnConv(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OneDnnConv::~OneDnnConv() = default;

std::unique_ptr<OneDnnConv> OneDnnConv::Create(const PeerConv& c, PeerAlgorithm algorithm,
                                               bool blocked) {
  const int64_t pad = c.kernel / 2, out = (c.size + 2 * pad - c.kernel) / c.stride + 1;
  auto any = [](const memory::dims& dims) {
    return memory::desc(dims, memory::data_type::f32, memory::format_tag::any);
  };
  memory::dims weights = {c.out, c.in, c.kernel, c.kernel};
  if (c.depthwise) weights = {c.out, 1, 1, c.kernel, c.kernel};
  const dnnl::algorithm which = algorithm == PeerAlgorithm::kWinograd
                                    ? dnnl::algorithm::convolution_winograd
                                    : dnnl::algorithm::convolution_direct;
  auto impl = std::make_unique<Impl>();
  try {
    dnnl::post_ops post;
    post.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(post);
    const Conv::desc desc(dnnl::prop_kind::forward_inference, which, any({1, c.in, c.size, c.size}),
                          any(weights), any({c.out}), any({1, c.out, out, out}),
                          {c.stride, c.stride}, {pad, pad}, {pad, pad});
    impl->desc = Conv::primitive_desc(desc, attributes, impl->engine);
  } catch (const dnnl::error&) {
    return nullptr;
  }
  impl->primitive = Conv(impl->desc);
  auto allocate = [&](int id, const memory::desc& desc) {
    impl->arguments.insert({id, memory(desc, impl->engine)});
  };
  allocate(DNNL_ARG_SRC, impl->desc.src_desc());
  allocate(DNNL_ARG_WEIGHTS, impl->desc.weights_desc());
  allocate(DNNL_ARG_BIAS, impl->desc.bias_desc());
  allocate(DNNL_ARG_DST, impl->desc.dst_desc());
  using Tag = memory::format_tag;
  auto given = [](const memory::dims& dims, Tag tag) {
    return memory::desc(dims, memory::data_type::f32, tag);
  };
  impl->x = given({1, c.in, c.size, c.size}, blocked ? Tag::nChw16c : Tag::nchw);
  impl->y = given({1, c.out, out, out}, blocked ? Tag::nChw16c : Tag::nchw);
  impl->bias = given({c.out}, Tag::a);
  impl->weights = given(weights, c.depthwise ? Tag::Goihw16g
                                 : blocked   ? Tag::OIhw16i16o
                                             : Tag::Oihw16o);
  return std::unique_ptr<OneDnnConv>(new OneDnnConv(std::move(impl)));
}

void OneDnnConv::Run() {
  impl_->primitive.execute(impl_->stream, impl_->arguments);
  impl_->stream.wait();
}

void OneDnnConv::Load(const float* x, const float* weights, const float* bias) {
  using Tag = memory::format_tag;
  const bool grouped = impl_->weights.dims().size() == 5;
  impl_->Set(DNNL_ARG_SRC, impl_->x, Tag::nchw, x);
  impl_->Set(DNNL_ARG_WEIGHTS, impl_->weights, grouped ? Tag::goihw : Tag::oihw, weights);
  impl_->Set(DNNL_ARG_BIAS, impl_->bias, Tag::a, bias);
}

std::vector<float> OneDnnConv::Output() {
  std::vector<float> values(impl_->y.get_size() / sizeof(float));
  memory plain(impl_->y, impl_->engine, values.data());
  memory& result = impl_->arguments.at(DNNL_ARG_DST);
  dnnl::reorder(result, plain).execute(impl_->stream, result, plain);
  impl_->stream.wait();
  return values;
}

}  // namespace tilewright::bench
