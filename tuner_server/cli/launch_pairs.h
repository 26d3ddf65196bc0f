// The kernels of two modules of one model side by side: those that do the same nodes of the ONNX
// model. Values and pure functions; thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "deploy/module/manifest.h"

namespace tilewright::cli {

// All launches of a module for one set of nodes (a Winograd convolution has several), or one launch
// without nodes, by its name. A time of 0: the module has no such kernel; it fuses otherwise.
struct LaunchPair {
  std::vector<std::string> nodes;
  std::string name;  // of the first launch
  double a_ns = 0;
  double b_ns = 0;
};

// A module that ran, and the times of one run: one for each launch of the function, in its order.
struct LaunchTimes {
  const module::Manifest& manifest;
  const module::Function& function;
  const std::vector<double>& ns;
};

// In the order of a, then what only b has.
std::vector<LaunchPair> PairLaunches(const LaunchTimes& a, const LaunchTimes& b);

std::string LaunchPairsTable(const std::vector<LaunchPair>& pairs);
nlohmann::json LaunchPairsJson(const std::vector<LaunchPair>& pairs);

}  // namespace tilewright::cli
