#include "tests/bench/peers.h"

#ifdef TILEWRIGHT_BENCH_ONEDNN
#include <dnnl.h>

#include "deploy/support/strings.h"
#endif

namespace tilewright::bench {

Peers MakePeers([[maybe_unused]] const Layer& layer, [[maybe_unused]] const Operands& operands,
                [[maybe_unused]] int threads) {
  Peers peers;
#ifdef TILEWRIGHT_BENCH_ONEDNN
  AddOneDnn(layer, operands, threads, &peers);
#endif
#ifdef TILEWRIGHT_BENCH_OPENBLAS
  AddOpenBlas(layer, operands, threads, &peers);
#endif
#ifdef TILEWRIGHT_BENCH_XNNPACK
  AddXnnPack(layer, operands, threads, &peers);
#endif
  return peers;
}

std::vector<std::string> PeerLibraries() {
  std::vector<std::string> libraries;
#ifdef TILEWRIGHT_BENCH_ONEDNN
  const dnnl_version_t* v = dnnl_version();
  libraries.push_back(support::StrCat("oneDNN ", v->major, ".", v->minor, ".", v->patch));
#endif
#ifdef TILEWRIGHT_BENCH_OPENBLAS
  libraries.emplace_back("OpenBLAS");
#endif
#ifdef TILEWRIGHT_BENCH_XNNPACK
  libraries.emplace_back("XNNPACK");
#endif
  return libraries;
}

}  // namespace tilewright::bench
