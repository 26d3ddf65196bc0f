#include "tests/bench/peers.h"

#include <algorithm>

#include "deploy/support/status.h"

#ifdef TILEWRIGHT_BENCH_ONEDNN
#include <dnnl.h>

#include "deploy/support/strings.h"
#endif
#ifdef TILEWRIGHT_BENCH_OPENBLAS
#include <cblas-openblas.h>
#endif

namespace tilewright::bench {
namespace {

int vector_limit = 64;  // bytes

bool Limited() { return vector_limit < 64; }

#ifdef TILEWRIGHT_BENCH_OPENBLAS
// Whether the kernels that OpenBLAS chose when it was loaded keep to the limit.
bool OpenBlasKeepsToLimit() {
  const std::string core = openblas_get_corename();
  return !Limited() || core == "Haswell" || core == "Zen";
}
#endif

}  // namespace

void LimitPeers(const ir::Target& target) {
  vector_limit = target.vector_bytes;
#ifdef TILEWRIGHT_BENCH_ONEDNN
  if (!Limited()) return;
  const auto& has = target.required_features;
  const bool vnni = std::find(has.begin(), has.end(), "avxvnni") != has.end();
  TW_CHECK(dnnl_set_max_cpu_isa(vnni ? dnnl_cpu_isa_avx2_vnni : dnnl_cpu_isa_avx2) == dnnl_success);
#endif
}

Peers MakePeers([[maybe_unused]] const Layer& layer, [[maybe_unused]] const Operands& operands,
                [[maybe_unused]] int threads) {
  Peers peers;
#ifdef TILEWRIGHT_BENCH_ONEDNN
  AddOneDnn(layer, operands, threads, &peers);
#endif
#ifdef TILEWRIGHT_BENCH_OPENBLAS
  if (OpenBlasKeepsToLimit()) AddOpenBlas(layer, operands, threads, &peers);
#endif
#ifdef TILEWRIGHT_BENCH_XNNPACK
  if (!Limited()) AddXnnPack(layer, operands, threads, &peers);
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
  if (OpenBlasKeepsToLimit()) libraries.emplace_back("OpenBLAS");
#endif
#ifdef TILEWRIGHT_BENCH_XNNPACK
  if (!Limited()) libraries.emplace_back("XNNPACK");
#endif
  return libraries;
}

}  // namespace tilewright::bench
