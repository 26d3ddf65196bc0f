// Peers on an emulated board. tests/bench/board_race.py builds it for another architecture and runs
// it under QEMU with device_agent/qemu_board.c. It counts the cycles of convolutions: by XNNPACK,
// and by OpenBLAS on their columns (im2col and product are counted). Weights are packed before,
// activations are in the library's layout, one run precedes the counted one, as in the worker.
//
//   board_peers COUNTER [bytes] < LINES     a line is: name in out size kernel stride
//
// Prints "name peer cycles instructions" for each. Results are compared with plain loops. With the
// word bytes: XNNPACK's convolutions of 8-bit numbers, which are not compared.
#include <cblas.h>
#include <xnnpack.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "device_agent/board_counter.h"

namespace {

struct Conv {
  int in = 0, out = 0, size = 0, kernel = 0, stride = 0;
  int pad() const { return kernel / 2; }
  int out_size() const { return (size + 2 * pad() - kernel) / stride + 1; }
  int columns() const { return in * kernel * kernel; }
};

volatile TwBoardCounter* g_counter;

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "board_peers: %s\n", why.c_str());
  std::exit(1);
}

void Check(xnn_status status) {
  if (status != xnn_status_success) Fail("XNNPACK: status " + std::to_string(status));
}

std::vector<float> Random(size_t count, uint32_t seed) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(seed >> 8) / (1 << 23) - 1;
  }
  return values;
}

// x: (c, y, x); weights: (o, i, ky, kx); result: (o, y, x).
struct Operands {
  std::vector<float> x, weights;
};

float At(const Conv& l, const std::vector<float>& x, int c, int row, int column) {
  if (row < 0 || column < 0 || row >= l.size || column >= l.size) return 0;
  return x[(static_cast<size_t>(c) * l.size + row) * l.size + column];
}

double Plain(const Conv& l, const Operands& v, int o, int row, int column) {
  double sum = 0;
  const float* w = &v.weights[static_cast<size_t>(o) * l.columns()];
  for (int c = 0; c < l.in; ++c) {
    for (int ky = 0; ky < l.kernel; ++ky) {
      for (int kx = 0; kx < l.kernel; ++kx) {
        sum += static_cast<double>(*w++) *
               At(l, v.x, c, row * l.stride + ky - l.pad(), column * l.stride + kx - l.pad());
      }
    }
  }
  return sum;
}

// A sample of the results: all of them would take longer than what is measured.
void Compare(const Conv& l, const Operands& v, const std::string& peer,
             const std::function<float(int, int, int)>& result) {
  for (int i = 0; i < 64; ++i) {
    const int o = i * 37 % l.out, row = i * 11 % l.out_size(), column = i * 7 % l.out_size();
    const double wanted = Plain(l, v, o, row, column), found = result(o, row, column);
    if (!(std::abs(found - wanted) <= 1e-3 + 1e-4 * std::abs(wanted))) {
      Fail(peer + ": expected " + std::to_string(wanted) + ", found " + std::to_string(found));
    }
  }
}

void Measure(const std::string& name, const std::string& peer, const std::function<void()>& run) {
  run();
  const uint64_t cycles = g_counter->cycles, instructions = g_counter->instructions;
  run();
  const uint64_t c = g_counter->cycles - cycles, i = g_counter->instructions - instructions;
  std::printf("%s %s %llu %llu\n", name.c_str(), peer.c_str(), static_cast<unsigned long long>(c),
              static_cast<unsigned long long>(i));
  std::fflush(stdout);
}

void RaceXnnPack(const std::string& name, const Conv& l, const Operands& v) {
  const size_t area = static_cast<size_t>(l.size) * l.size, taps = l.kernel * l.kernel;
  std::vector<float> x(v.x.size() + XNN_EXTRA_BYTES), weights(v.weights.size()), bias(l.out);
  std::vector<float> y(static_cast<size_t>(l.out) * l.out_size() * l.out_size() + XNN_EXTRA_BYTES);
  for (int c = 0; c < l.in; ++c) {
    for (size_t at = 0; at < area; ++at) x[at * l.in + c] = v.x[c * area + at];
  }
  for (int o = 0; o < l.out; ++o) {
    for (int i = 0; i < l.in; ++i) {
      for (size_t tap = 0; tap < taps; ++tap) {
        weights[(o * taps + tap) * l.in + i] =
            v.weights[(static_cast<size_t>(o) * l.in + i) * taps + tap];
      }
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  const uint32_t pad = l.pad(), k = l.kernel, stride = l.stride;
  xnn_operator_t op = nullptr;
  Check(xnn_create_convolution2d_nhwc_f32(pad, pad, pad, pad, k, k, stride, stride, 1, 1, 1, l.in,
                                          l.out, l.in, l.out, weights.data(), bias.data(),
                                          -infinity, infinity, 0, &op));
  Check(xnn_setup_convolution2d_nhwc_f32(op, 1, l.size, l.size, x.data(), y.data(), nullptr));
  Measure(name, "XNNPACK", [&] { Check(xnn_run_operator(op, nullptr)); });
  Compare(l, v, "XNNPACK", [&](int o, int row, int column) {
    return y[(static_cast<size_t>(row) * l.out_size() + column) * l.out + o];
  });
  xnn_delete_operator(op);
}

void Columns(const Conv& l, const std::vector<float>& x, float* to) {
  for (int c = 0; c < l.in; ++c) {
    for (int ky = 0; ky < l.kernel; ++ky) {
      for (int kx = 0; kx < l.kernel; ++kx) {
        for (int row = 0; row < l.out_size(); ++row) {
          const int from = row * l.stride + ky - l.pad();
          for (int column = 0; column < l.out_size(); ++column) {
            *to++ = At(l, x, c, from, column * l.stride + kx - l.pad());
          }
        }
      }
    }
  }
}

void RaceOpenBlas(const std::string& name, const Conv& l, const Operands& v) {
  const int area = l.out_size() * l.out_size(), depth = l.columns();
  const bool plain = l.kernel == 1 && l.stride == 1;  // the input is its own columns
  std::vector<float> columns(plain ? 0 : static_cast<size_t>(depth) * area);
  std::vector<float> y(static_cast<size_t>(l.out) * area);
  Measure(name, "OpenBLAS", [&] {
    if (!plain) Columns(l, v.x, columns.data());
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, l.out, area, depth, 1, v.weights.data(),
                depth, plain ? v.x.data() : columns.data(), area, 0, y.data(), area);
  });
  Compare(l, v, "OpenBLAS", [&](int o, int row, int column) {
    return y[static_cast<size_t>(o) * area + row * l.out_size() + column];
  });
}

void RaceBytes(const std::string& name, const Conv& l) {
  std::vector<int8_t> x(static_cast<size_t>(l.in) * l.size * l.size + XNN_EXTRA_BYTES, 3);
  std::vector<int8_t> weights(static_cast<size_t>(l.out) * l.columns(), 5);
  std::vector<int8_t> y(static_cast<size_t>(l.out) * l.out_size() * l.out_size() + XNN_EXTRA_BYTES);
  std::vector<int32_t> bias(l.out);
  const uint32_t pad = l.pad(), k = l.kernel, stride = l.stride;
  xnn_operator_t op = nullptr;
  Check(xnn_create_convolution2d_nhwc_qs8(pad, pad, pad, pad, k, k, stride, stride, 1, 1, 1, l.in,
                                          l.out, l.in, l.out, 0, 1, 1, weights.data(), bias.data(),
                                          0, 256, std::numeric_limits<int8_t>::min(),
                                          std::numeric_limits<int8_t>::max(), 0, &op));
  Check(xnn_setup_convolution2d_nhwc_qs8(op, 1, l.size, l.size, x.data(), y.data(), nullptr));
  Measure(name, "XNNPACK", [&] { Check(xnn_run_operator(op, nullptr)); });
  xnn_delete_operator(op);
}

}  // namespace

int main(int argc, char** argv) {
  const bool bytes = argc == 3 && std::string(argv[2]) == "bytes";
  if (argc != 2 && !bytes) Fail("expected the counter's address [bytes]");
  g_counter = reinterpret_cast<volatile TwBoardCounter*>(std::strtoull(argv[1], nullptr, 0));
  if (g_counter->magic != TW_BOARD_MAGIC) Fail("no counter there");
  Check(xnn_initialize(nullptr));
  char name[64];
  Conv l;
  while (std::scanf("%63s %d %d %d %d %d", name, &l.in, &l.out, &l.size, &l.kernel, &l.stride) ==
         6) {
    if (bytes) {
      RaceBytes(name, l);
      continue;
    }
    const Operands v = {Random(static_cast<size_t>(l.in) * l.size * l.size, 1),
                        Random(static_cast<size_t>(l.out) * l.columns(), 2)};
    RaceXnnPack(name, l, v);
    RaceOpenBlas(name, l, v);
  }
}
