#include <cblas-openblas.h>

#include <cstring>

#include "tests/bench/peers.h"

namespace tilewright::bench {
namespace {

// sgemm, or sgemv for one row or column; the bias is where the result starts from.
class OpenBlas final : public Peer {
 public:
  OpenBlas(const Layer& l, const Operands& v, int threads)
      : l_(l), v_(v), y_(static_cast<size_t>(l.m * l.n)) {
    openblas_set_num_threads(threads);
  }
  std::string name() const override { return "OpenBLAS"; }
  void Run() override {
    for (int64_t i = 0; i < l_.m; ++i) {
      memcpy(&y_[static_cast<size_t>(i * l_.n)], v_.bias.data(), sizeof(float) * v_.bias.size());
    }
    const auto m = static_cast<int>(l_.m), n = static_cast<int>(l_.n), k = static_cast<int>(l_.k);
    if (m == 1) {
      cblas_sgemv(CblasRowMajor, CblasTrans, k, n, 1, v_.weights.data(), n, v_.x.data(), 1, 1,
                  y_.data(), 1);
    } else if (n == 1) {
      cblas_sgemv(CblasRowMajor, CblasNoTrans, m, k, 1, v_.x.data(), k, v_.weights.data(), 1, 1,
                  y_.data(), 1);
    } else {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, v_.x.data(), k,
                  v_.weights.data(), n, 1, y_.data(), n);
    }
  }
  std::vector<float> Result() override { return y_; }

 private:
  Layer l_;
  Operands v_;
  std::vector<float> y_;
};

void AddOpenBlas(const Layer& layer, const Operands& operands, int threads, Peers* peers) {
  if (layer.kind != Layer::Kind::kGemm) return;
  peers->push_back(std::make_unique<OpenBlas>(layer, operands, threads));
}

}  // namespace

// OpenBLAS chooses its kernels when it is loaded, by the machine or by OPENBLAS_CORETYPE.
std::optional<PeerLibrary> OpenOpenBlas(const target::Target& target) {
  const std::string core = openblas_get_corename();
  if (target.machine.vector_bytes < 64 && core != "Haswell" && core != "Zen") return std::nullopt;
  return PeerLibrary{"OpenBLAS", AddOpenBlas};
}

}  // namespace tilewright::bench
