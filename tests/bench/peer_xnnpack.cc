#include <pthreadpool.h>
#include <xnnpack.h>

#include <limits>

#include "deploy/support/status.h"
#include "tests/bench/peers.h"

namespace tilewright::bench {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// XNNPACK reads past the end of its operands (XNN_EXTRA_BYTES).
constexpr size_t kExtra = XNN_EXTRA_BYTES / sizeof(float) + 1;

void Check(xnn_status status) { TW_CHECK(status == xnn_status_success) << "XNNPACK: " << status; }

class XnnPack : public Peer {
 public:
  explicit XnnPack(int threads)
      : pool_(threads > 1 ? pthreadpool_create(static_cast<size_t>(threads)) : nullptr) {
    Check(xnn_initialize(nullptr));
  }
  ~XnnPack() override {
    xnn_delete_operator(op_);
    if (pool_ != nullptr) pthreadpool_destroy(pool_);
  }
  std::string name() const override { return "XNNPACK"; }
  void Run() override { Check(xnn_run_operator(op_, pool_)); }

 protected:
  xnn_operator_t op_ = nullptr;
  pthreadpool_t pool_;
  std::vector<float> x_, y_;
};

class XnnConv final : public XnnPack {
 public:
  XnnConv(const Layer& l, const Operands& v, int threads) : XnnPack(threads), l_(l) {
    const int64_t area = l.size * l.size, inner = l.depthwise ? 1 : l.in,
                  taps = l.kernel * l.kernel;
    x_.resize(v.x.size() + kExtra);
    y_.resize(static_cast<size_t>(l.out * l.out_size() * l.out_size()) + kExtra);
    for (int64_t c = 0; c < l.in; ++c) {
      for (int64_t at = 0; at < area; ++at) x_[at * l.in + c] = v.x[c * area + at];
    }
    std::vector<float> weights(v.weights.size());  // O, taps, I
    for (int64_t o = 0; o < l.out; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        for (int64_t tap = 0; tap < taps; ++tap) {
          weights[(o * taps + tap) * inner + i] = v.weights[(o * inner + i) * taps + tap];
        }
      }
    }
    const auto u32 = [](int64_t value) { return static_cast<uint32_t>(value); };
    const uint32_t pad = u32(l.kernel / 2), k = u32(l.kernel), stride = u32(l.stride);
    const auto in = static_cast<size_t>(l.in), out = static_cast<size_t>(l.out);
    const auto size = static_cast<size_t>(l.size);
    Check(xnn_create_convolution2d_nhwc_f32(pad, pad, pad, pad, k, k, stride, stride, 1, 1,
                                            l.depthwise ? u32(l.in) : 1, static_cast<size_t>(inner),
                                            l.depthwise ? 1 : out, in, out, weights.data(),
                                            v.bias.data(), 0.0f, kInfinity, 0, &op_));
    Check(xnn_setup_convolution2d_nhwc_f32(op_, 1, size, size, x_.data(), y_.data(), pool_));
  }
  std::vector<float> Result() override {
    const int64_t area = l_.out_size() * l_.out_size();
    std::vector<float> plain(static_cast<size_t>(l_.out * area));
    for (int64_t c = 0; c < l_.out; ++c) {
      for (int64_t at = 0; at < area; ++at) plain[c * area + at] = y_[at * l_.out + c];
    }
    return plain;
  }

 private:
  Layer l_;
};

class XnnFullyConnected final : public XnnPack {
 public:
  XnnFullyConnected(const Layer& l, const Operands& v, int threads)
      : XnnPack(threads), results_(static_cast<size_t>(l.m * l.n)) {
    x_ = v.x;
    x_.resize(x_.size() + kExtra);
    y_.resize(results_ + kExtra);
    const auto k = static_cast<size_t>(l.k), n = static_cast<size_t>(l.n);
    Check(xnn_create_fully_connected_nc_f32(k, n, k, n, v.weights.data(), v.bias.data(), -kInfinity,
                                            kInfinity, XNN_FLAG_TRANSPOSE_WEIGHTS, &op_));
    Check(xnn_setup_fully_connected_nc_f32(op_, static_cast<size_t>(l.m), x_.data(), y_.data(),
                                           pool_));
  }
  std::vector<float> Result() override {
    return {y_.begin(), y_.begin() + static_cast<std::ptrdiff_t>(results_)};
  }

 private:
  size_t results_;
};

void AddXnnPack(const Layer& layer, const Operands& operands, int threads, Peers* peers) {
  if (layer.bytes_only) return;  // its quantised operators scale by tensor, not by channel
  if (layer.kind == Layer::Kind::kConv) {
    peers->push_back(std::make_unique<XnnConv>(layer, operands, threads));
  } else {
    peers->push_back(std::make_unique<XnnFullyConnected>(layer, operands, threads));
  }
}

}  // namespace

// XNNPACK takes the widest vectors of the machine and has no way to limit them.
std::optional<PeerLibrary> OpenXnnPack(const target::Target& target) {
  if (target.machine.vector_bytes < 64) return std::nullopt;
  return PeerLibrary{"XNNPACK", AddXnnPack};
}

}  // namespace tilewright::bench
