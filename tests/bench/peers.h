// Hand-tuned libraries beside our kernels, each with its own packing of weights done beforehand and
// activations in the layout that it likes best. Those are built whose Debian package is installed
// (libdnnl-dev, libopenblas-dev, libxnnpack-dev). One owner each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/target.h"
#include "tests/bench/layers.h"

namespace tilewright::bench {

class Peer {
 public:
  virtual ~Peer() = default;
  virtual std::string name() const = 0;  // "oneDNN winograd"
  // Whether it multiplies as often as the layer's definition says: no Winograd.
  virtual bool direct() const { return true; }
  virtual void Run() = 0;
  virtual std::vector<float> Result() = 0;  // as PlainResult
};
using Peers = std::vector<std::unique_ptr<Peer>>;

// Keeps the libraries to what a target of narrower vectors than 64 bytes has, for races on the code
// of such machines: oneDNN is told so; XNNPACK, which cannot be told, is left out, and OpenBLAS,
// too, where its environment (OPENBLAS_CORETYPE) does not name such a machine. To be called before
// the first peer is made.
void LimitPeers(const ir::Target& target);
// All that are built and can do the layer, on `threads` threads.
Peers MakePeers(const Layer& layer, const Operands& operands, int threads);
// The libraries that are built, with versions where they tell.
std::vector<std::string> PeerLibraries();

// One of each library; what is not built adds nothing.
void AddOneDnn(const Layer& layer, const Operands& operands, int threads, Peers* peers);
void AddOpenBlas(const Layer& layer, const Operands& operands, int threads, Peers* peers);
void AddXnnPack(const Layer& layer, const Operands& operands, int threads, Peers* peers);

}  // namespace tilewright::bench
