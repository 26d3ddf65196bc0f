// What a device did in one launch, as its plug-in says it (TwDeviceTrace). Values.
#ifndef DEPLOY_RUNTIME_LAUNCH_TRACE_H_
#define DEPLOY_RUNTIME_LAUNCH_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace tilewright::runtime {

struct LaunchTrace {
  size_t launch = 0;    // of the function
  std::string program;  // on the device
  std::string unit;     // of the time, as TwDeviceInfo
  int64_t time = 0;
  std::string picture;    // SVG
  std::string events;     // Chrome's trace format
  std::string work_name;  // what `work` counts
  int64_t work = 0, bytes = 0;
  double peak_work = 0, peak_bytes = 0;  // the most for each unit of time
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_LAUNCH_TRACE_H_
