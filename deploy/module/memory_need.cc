#include "deploy/module/memory_need.h"

#include "deploy/module/size_plan.h"

namespace tilewright::module {

MemoryNeed NeedOf(const Manifest& manifest) {
  MemoryNeed need;
  need.weights = manifest.constants_bytes;
  need.arena = manifest.arena_bytes + PreparedBytes(manifest);
  need.workspace = manifest.workspace_bytes;
  const Function& main = *manifest.FindFunction("main");
  const auto add = [&](int64_t id) {
    need.ends += manifest.tensors[static_cast<size_t>(id)].bytes;
  };
  for (const int64_t id : main.inputs) add(id);
  for (const int64_t id : main.outputs) add(id);
  for (const SizeCheck& check : main.checks) add(check.tensor);
  for (const Tensor& tensor : manifest.tensors) {
    if (tensor.is_own_list()) need.state += StateBytes(manifest, tensor);
  }
  for (const CodeObject& code : manifest.code) need.code += code.size;
  return need;
}

}  // namespace tilewright::module
