// What a launch is called in each place where people meet it: the task in the tuning log, the
// launch in the profile, the nodes in the ONNX model. A list of them has one text form, which a
// module keeps in its provenance (LaunchNamesKey, one line per launch of a function) and a tuning
// log with its task. Pure functions on values; thread-safe.
#ifndef DEPLOY_MODULE_LAUNCH_NAMES_H_
#define DEPLOY_MODULE_LAUNCH_NAMES_H_

#include <string>
#include <string_view>
#include <vector>

namespace tilewright::module {

// The key in the provenance for a function.
std::string LaunchNamesKey(std::string_view function);

struct LaunchNames {
  std::string task;                // in its job: "t0-conv2d-add-relu"
  std::string launch;              // in its module, as the profile shows it: "relu_4"
  std::vector<std::string> nodes;  // of the ONNX model, in the order of their work
  bool operator==(const LaunchNames&) const = default;
};

// One line per launch, fields separated by tabs. Names lose what has no place in a line: control
// characters become blanks, what is not UTF-8 becomes U+FFFD.
std::string LaunchNamesText(const std::vector<LaunchNames>& launches);
// The inverse. Text of another form gives what can be read of it.
std::vector<LaunchNames> ParseLaunchNames(std::string_view text);

}  // namespace tilewright::module

#endif  // DEPLOY_MODULE_LAUNCH_NAMES_H_
