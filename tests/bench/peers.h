// Hand-tuned libraries that race against our kernels. Each packs its weights before the race and
// gets activations in the layout that it likes best. Each is an option of CMake, off unless asked
// for (tests/bench/README.md). Every peer has one owner.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/target/target.h"
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

// A library that races, limited to what a target has.
struct PeerLibrary {
  std::string name;  // with its version if the library tells it
  void (*add)(const Layer& layer, const Operands& operands, int threads, Peers* peers);
};

// Returns the libraries that are built in (CMake options TILEWRIGHT_BENCH_*) and that can keep to
// the vectors of `target`. Call it before the first peer is made: oneDNN takes its limit only then.
std::vector<PeerLibrary> PeerLibraries(const target::Target& target);
// Returns the implementations of the layer that the libraries have, on `threads` threads.
Peers MakePeers(const std::vector<PeerLibrary>& libraries, const Layer& layer,
                const Operands& operands, int threads);

// On the first OpenCL device, without the layer's bias and activation.
class DevicePeer {
 public:
  virtual ~DevicePeer() = default;
  virtual std::string name() const = 0;
  // Returns what `calls` calls take together, in the device's own time.
  virtual double Time(int64_t calls) = 0;
  virtual std::vector<float> Result() = 0;  // of the last call; as PlainResult
};
// Returns all ways of the built-in libraries of OpenCL to compute the layer.
std::vector<std::unique_ptr<DevicePeer>> MakeOpenClPeers(const Layer& layer,
                                                         const Operands& operands);
// CLBlast: products, and convolutions as products of gathered windows. Dies (TW_CHECK) if OpenCL
// fails.
std::vector<std::unique_ptr<DevicePeer>> MakeClBlastPeers(const Layer& layer,
                                                          const Operands& operands);

// One function per library. Each limits its library to the target, or returns nullopt if the
// library cannot be limited.
using OpenLibrary = std::optional<PeerLibrary> (*)(const target::Target& target);
std::optional<PeerLibrary> OpenOneDnn(const target::Target& target);
std::optional<PeerLibrary> OpenOpenBlas(const target::Target& target);
std::optional<PeerLibrary> OpenXnnPack(const target::Target& target);

}  // namespace tilewright::bench
