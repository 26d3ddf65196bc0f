#include "tuner_server/cli/module_ends.h"

#include <nlohmann/json.hpp>

#include "deploy/module/found_vars.h"
#include "deploy/support/strings.h"

namespace tilewright::cli {

using support::StrCat;

nlohmann::json DimsJson(const std::vector<module::Dim>& shape) {
  nlohmann::json dims = nlohmann::json::array();
  for (const module::Dim& dim : shape) {
    dims.push_back(dim.constant() ? nlohmann::json(*dim.constant()) : nlohmann::json(dim.ToText()));
  }
  return dims;
}

nlohmann::json EndsJson(const module::Manifest& manifest, const std::vector<int64_t>& ids) {
  nlohmann::json rows = nlohmann::json::array();
  for (const int64_t id : ids) {
    const module::Tensor& tensor = manifest.tensors[static_cast<size_t>(id)];
    rows.push_back({{"name", tensor.name},
                    {"dtype", module::DTypeName(tensor.dtype)},
                    {"dims", DimsJson(tensor.shape)}});
  }
  return rows;
}

nlohmann::json SizeVarsJson(const module::Manifest& manifest) {
  nlohmann::json rows = nlohmann::json::array();
  const std::set<std::string> found = module::FoundVariables(manifest);
  for (const module::SizeVar& var : manifest.size_vars) {
    rows.push_back({{"name", var.name}, {"min", var.min}, {"max", var.max}});
    if (found.contains(var.name)) rows.back()["found"] = true;
  }
  return rows;
}

nlohmann::json SpecialisationsJson(const module::Manifest& manifest) {
  nlohmann::json rows = nlohmann::json::array();
  for (const module::Function& function : manifest.functions) {
    if (function.at.empty()) continue;
    rows.push_back({{"name", function.name}, {"at", function.at}});
  }
  return rows;
}

std::string EndsText(const module::Manifest& manifest, const std::vector<int64_t>& ids) {
  std::vector<std::string> parts;
  for (const int64_t id : ids) {
    const module::Tensor& tensor = manifest.tensors[static_cast<size_t>(id)];
    parts.push_back(StrCat(tensor.name, " ", module::DTypeName(tensor.dtype), " ",
                           module::ShapeText(tensor.shape)));
  }
  return support::Join(parts, ", ");
}

std::string SizeBoundsText(const module::Manifest& manifest) {
  std::vector<std::string> parts;
  const std::set<std::string> found = module::FoundVariables(manifest);
  for (const module::SizeVar& var : manifest.size_vars) {
    parts.push_back(StrCat(var.name, " from ", var.min, " to ", var.max,
                           found.contains(var.name) ? ", which a run finds" : ""));
  }
  return support::Join(parts, ", ");
}

std::string SpecialisationsText(const module::Manifest& manifest) {
  std::vector<std::string> parts;
  for (const module::Function& function : manifest.functions) {
    if (function.at.empty()) continue;
    std::vector<std::string> sizes;
    for (const auto& [name, size] : function.at) sizes.push_back(StrCat(name, "=", size));
    parts.push_back(StrCat(function.name, " (", support::Join(sizes, ","), ")"));
  }
  return support::Join(parts, ", ");
}

}  // namespace tilewright::cli
