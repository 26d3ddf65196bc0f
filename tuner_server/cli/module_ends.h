// The inputs and outputs of a module and its size variables, for people and for scripts. Pure
// functions; thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "deploy/module/manifest.h"

namespace tilewright::cli {

// ["N",8]: numbers, and the text of open dimensions.
nlohmann::json DimsJson(const std::vector<module::Dim>& shape);
// [{"name": "x", "dtype": "float32", "dims": ["N", 8]}] for tensors of the module.
nlohmann::json EndsJson(const module::Manifest& manifest, const std::vector<int64_t>& ids);
// [{"name": "N", "min": 1, "max": 33}]
nlohmann::json SizeVarsJson(const module::Manifest& manifest);
// [{"name": "at_N_4", "at": {"N": 4}}]: the functions that replace "main" at some sizes.
nlohmann::json SpecialisationsJson(const module::Manifest& manifest);

// "x float32 Nx8, z int8 4"
std::string EndsText(const module::Manifest& manifest, const std::vector<int64_t>& ids);
// "N from 1 to 33, M from 2 to 4"; "" if all sizes are fixed.
std::string SizeBoundsText(const module::Manifest& manifest);
// "at_N_4 (N=4), at_N_8 (N=8)"; "" if there are none.
std::string SpecialisationsText(const module::Manifest& manifest);

}  // namespace tilewright::cli
