// The names of launches for people and for scripts: how a task of the log, a launch of the profile
// and the nodes of the ONNX model belong together. Pure functions; thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "deploy/module/launch_names.h"
#include "deploy/module/manifest.h"

namespace tilewright::cli {

// "Conv_0, Relu_1, Add_2 and 2 more"; "-" for none.
std::string NodesText(const std::vector<std::string>& nodes);
// "relu_4 (Conv_0, Relu_1); relu_6 (Conv_2, Relu_3) and 3 more"; "-" for none.
std::string LaunchesText(const std::vector<module::LaunchNames>& launches);
// [{"launch": ..., "onnx_nodes": [...]}]
nlohmann::json LaunchesJson(const std::vector<module::LaunchNames>& launches);

// The names of each launch of "main", in its order. Modules of versions that kept no names have the
// launches' own names only.
std::vector<module::LaunchNames> NamesOf(const module::Manifest& manifest);
// The same of any function.
std::vector<module::LaunchNames> NamesOf(const module::Manifest& manifest,
                                         const module::Function& function);

// Whether `word` is the launch, or one of its nodes.
bool Names(const module::LaunchNames& launch, const std::string& word);

}  // namespace tilewright::cli
