// oneDNN beside our kernels: one convolution with bias and relu in the layouts that oneDNN likes
// best, weights packed beforehand, as the kernels it is raced against are. Built where
// Debian's libdnnl-dev is installed. One object, one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace tilewright::bench {

struct PeerConv {
  int64_t size, in, out, kernel, stride;
  bool depthwise = false;
};

enum class PeerAlgorithm : uint8_t { kDirect, kWinograd };

class OneDnnConv {
 public:
  // Null where oneDNN has no such algorithm for this shape. Operands and results of the caller are
  // in blocks of 16 channels (nChw16c, OIhw16i16o, Goihw16g) where `blocked`, else nchw and
  // Oihw16o.
  static std::unique_ptr<OneDnnConv> Create(const PeerConv& conv, PeerAlgorithm algorithm,
                                            bool blocked);
  void Load(const float* x, const float* weights, const float* bias);
  // The result in the caller's layout.
  std::vector<float> Output();
  ~OneDnnConv();

  void Run();

 private:
  struct Impl;
  explicit OneDnnConv(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::bench
