#include "tuner_server/jobs/fleet_compiler.h"

#include <map>
#include <vector>

#include "deploy/support/strings.h"
#include "tuner_server/log/toolchain_text.h"

namespace tilewright::jobs {

std::string FleetCompiler::Note(const v1::PoolLoad& load) {
  std::map<std::string, int> devices;  // by compiler, as toolchains name it
  for (const auto& [compiler, count] : load.driver_compilers()) {
    devices[std::string(log::CompilerOf(log::WithCompiler("", compiler)))] += count;
  }
  if (!name_.has_value() && load.online() > 0) {
    int most = 0;
    name_ = "";  // a tracker of an older version names none
    for (const auto& [compiler, count] : devices) {
      if (count <= most) continue;
      most = count;
      name_ = compiler;
    }
  }
  if (name().empty()) return "";
  std::vector<std::string> others;
  for (const auto& [compiler, count] : devices) {
    if (compiler == *name_) continue;
    others.push_back(compiler.empty() ? "one that its agent does not name" : compiler);
  }
  const std::string text = support::Join(others, ", ");
  if (text == others_told_) return "";
  others_told_ = text;
  if (text.empty()) return "";
  return support::StrCat("some devices have another driver compiler (", text,
                         "): what they measure is logged and not used. This job measures with ",
                         *name_,
                         ". Give such devices another pool, or start a new job if all "
                         "devices were updated");
}

}  // namespace tilewright::jobs
