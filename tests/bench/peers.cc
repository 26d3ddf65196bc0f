#include "tests/bench/peers.h"

namespace tilewright::bench {

std::vector<PeerLibrary> PeerLibraries(const target::Target& target) {
  const std::vector<OpenLibrary> built_in = {
#ifdef TILEWRIGHT_BENCH_ONEDNN
      OpenOneDnn,
#endif
#ifdef TILEWRIGHT_BENCH_OPENBLAS
      OpenOpenBlas,
#endif
#ifdef TILEWRIGHT_BENCH_XNNPACK
      OpenXnnPack,
#endif
  };
  std::vector<PeerLibrary> libraries;
  for (const OpenLibrary open : built_in) {
    if (std::optional<PeerLibrary> library = open(target)) libraries.push_back(*library);
  }
  return libraries;
}

std::vector<std::unique_ptr<DevicePeer>> MakeOpenClPeers(const Layer& layer,
                                                         const Operands& operands) {
#ifdef TILEWRIGHT_BENCH_CLBLAST
  return MakeClBlastPeers(layer, operands);
#else
  (void)layer, (void)operands;
  return {};
#endif
}

Peers MakePeers(const std::vector<PeerLibrary>& libraries, const Layer& layer,
                const Operands& operands, int threads) {
  Peers peers;
  for (const PeerLibrary& library : libraries) library.add(layer, operands, threads, &peers);
  return peers;
}

}  // namespace tilewright::bench
