// What importing an ONNX file costs: seconds (median of several), and the peak of memory as a
// multiple of the size of the model with its external data. JSON on standard output.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "compiler/onnx/onnx_import.h"
#include "compiler/onnx/onnx_model.h"
#include "deploy/support/clock.h"
#include "tests/support/process_status.h"

int main(int argc, char** argv) {
  using tilewright::graph::OnnxModel;
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: import_cost MODEL.onnx [RUNS]\n");
    return 2;
  }
  const int runs = argc > 2 ? std::atoi(argv[2]) : 3;
  tilewright::support::SystemClock clock;
  OnnxModel::OpenOptions options;
  options.external_data = true;
  std::vector<double> seconds;
  int64_t bytes = 0;
  for (int i = 0; i < std::max(1, runs); ++i) {
    const int64_t start = clock.NowNs();
    const auto model = OnnxModel::Open(argv[1], options);
    const auto graph = model.ok() ? ImportOnnx(*model) : model.status();
    if (!graph.ok()) {
      std::fprintf(stderr, "import_cost: %s\n", graph.status().ToString().c_str());
      return 1;
    }
    seconds.push_back(static_cast<double>(clock.NowNs() - start) * 1e-9);
    bytes = model->bytes();
  }
  std::sort(seconds.begin(), seconds.end());
  const double peak = 1024.0 * static_cast<double>(tilewright::tests::StatusKb("VmHWM"));
  std::printf("{\"bytes\": %lld, \"seconds\": %.3f, \"peak_bytes\": %.0f, \"peak_ratio\": %.3f}\n",
              static_cast<long long>(bytes), seconds[seconds.size() / 2], peak,
              peak / static_cast<double>(bytes));
  return 0;
}
