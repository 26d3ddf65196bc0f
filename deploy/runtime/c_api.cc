// The C interface: decode, call the C++ interface, encode. No exception leaves a function: an
// allocation that fails becomes RESOURCE_EXHAUSTED.
#include <algorithm>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deploy/module/found_vars.h"
#include "deploy/module/size_plan.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/device_code_cache.h"
#include "deploy/runtime/dl_tensor.h"
#include "deploy/runtime/runtime.h"
#include "deploy/runtime/size_binding.h"
#include "deploy/runtime/tilewright.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "deploy/support/version.h"

namespace rt = tilewright::runtime;
namespace mod = tilewright::module;
namespace support = tilewright::support;

namespace {

thread_local std::string last_error;

TwStatus Report(const absl::Status& status) {
  if (status.ok()) return TW_STATUS_OK;
  last_error = support::StatusText(status);
  return static_cast<TwStatus>(status.code());
}

// Runs `call` (a callable giving absl::Status) where nothing may be thrown.
template <typename Fn>
TwStatus Guarded(Fn call) noexcept {
  try {
    return Report(call());
  } catch (const std::bad_alloc&) {
    return TW_STATUS_RESOURCE_EXHAUSTED;
  } catch (...) {
    return TW_STATUS_UNKNOWN;
  }
}

absl::Status NullArgument(std::string_view name) {
  return support::InvalidArgument("runtime.c_api.null", std::string(name) + " is NULL");
}

constexpr int64_t kOpenDim = -1;

// What the C structures point to for one tensor; one per input and output, made with the module.
struct TensorFacts {
  std::string name;
  std::string dtype_name;
  mod::DType dtype = mod::DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<std::string> dims;  // as text
  // At the variables' minima and maxima.
  std::vector<int64_t> min;
  std::vector<int64_t> max;
  size_t bytes = 0;

  TensorFacts(const mod::Tensor& tensor, const mod::SizePlan& least, const mod::SizePlan& most)
      : name(tensor.name),
        dtype_name(mod::DTypeName(tensor.dtype)),
        dtype(tensor.dtype),
        min(least.tensors[static_cast<size_t>(tensor.id)].shape),
        max(most.tensors[static_cast<size_t>(tensor.id)].shape),
        bytes(static_cast<size_t>(tensor.bytes)) {
    for (const mod::Dim& dim : tensor.shape) {
      shape.push_back(dim.constant().value_or(kOpenDim));
      dims.push_back(dim.ToText());
    }
  }
};

}  // namespace

struct TwModule {
  std::shared_ptr<const rt::LoadedModule> loaded;
  std::string manifest_json;
  std::vector<TensorFacts> inputs;
  std::vector<TensorFacts> outputs;
  // Of "main".
  const mod::Function* main = nullptr;
  std::unique_ptr<const mod::SizePlanner> planner;
  std::unique_ptr<const rt::SizeBinding> binding;
};

struct TwSession {
  std::unique_ptr<rt::Session> session;
};

namespace {

absl::Status FinishOpen(absl::StatusOr<mod::ModuleFile> file, TwModule** out,
                        const rt::LoadOptions& options = {}) {
  TW_TRY(file.status());
  auto module = std::make_unique<TwModule>();
  TW_ASSIGN(module->loaded, rt::LoadedModule::Load(*std::move(file), options));
  const mod::Manifest& manifest = module->loaded->manifest();
  const mod::Function* main = manifest.FindFunction("main");
  if (main == nullptr) {
    return support::InvalidArgument("runtime.c_api.no_main", "the module has no function main");
  }
  module->main = main;
  module->planner = std::make_unique<mod::SizePlanner>(manifest, *main);
  module->binding = std::make_unique<rt::SizeBinding>(manifest, *main);
  mod::SizePlan least, most;
  TW_TRY(module->planner->Plan(mod::MinimaOf(manifest), &least));
  TW_TRY(module->planner->Plan(mod::MaximaOf(manifest), &most));
  module->manifest_json = std::string(module->loaded->file().manifest_json());
  const auto facts = [&](const std::vector<int64_t>& ids, std::vector<TensorFacts>* list) {
    for (const int64_t id : ids) {
      list->emplace_back(manifest.tensors[static_cast<size_t>(id)], least, most);
    }
  };
  facts(main->inputs, &module->inputs);
  facts(main->outputs, &module->outputs);
  *out = module.release();
  return absl::OkStatus();
}

absl::Status CheckIndex(size_t index, size_t count) {
  if (index < count) return absl::OkStatus();
  return support::InvalidArgument(
      "runtime.c_api.index",
      "expected less than " + std::to_string(count) + ", found " + std::to_string(index));
}

TwStatus DimInfo(const std::vector<TensorFacts>& list, size_t index, int32_t dim, TwDimInfo* out) {
  return Guarded([&]() -> absl::Status {
    if (out == nullptr) return NullArgument("out");
    TW_TRY(CheckIndex(index, list.size()));
    const TensorFacts& facts = list[index];
    const auto d = static_cast<size_t>(dim);  // a negative one is too large
    TW_TRY(CheckIndex(d, facts.shape.size()));
    *out = {facts.dims[d].c_str(), facts.shape[d] == kOpenDim ? 1 : 0, facts.min[d], facts.max[d]};
    return absl::OkStatus();
  });
}

// The shape of an output of "main" for the shapes of its inputs.
absl::StatusOr<std::vector<int64_t>> OutputShape(const TwModule& module,
                                                 std::span<const DLTensor* const> inputs,
                                                 size_t index) {
  TW_TRY(CheckIndex(index, module.outputs.size()));
  if (inputs.size() != module.inputs.size()) {
    return support::InvalidArgument("runtime.session.call_tensors",
                                    "expected " + std::to_string(module.inputs.size()) +
                                        " inputs, found " + std::to_string(inputs.size()));
  }
  std::vector<rt::Shape> shapes;
  for (const DLTensor* input : inputs) {
    if (input == nullptr) return NullArgument("an input");
    const std::span<const int64_t> shape = rt::ShapeOf(*input);
    shapes.emplace_back(shape.begin(), shape.end());
  }
  TW_ASSIGN(const std::vector<int64_t> sizes, module.binding->Bind(shapes));
  mod::SizePlan plan;
  TW_TRY(module.planner->Plan(sizes, &plan));
  return plan.tensors[static_cast<size_t>(module.main->outputs[index])].shape;
}

TwStatus Info(const std::vector<TensorFacts>& list, size_t index, TwTensorInfo* out) {
  return Guarded([&]() -> absl::Status {
    if (out == nullptr) return NullArgument("out");
    TW_TRY(CheckIndex(index, list.size()));
    const TensorFacts& facts = list[index];
    *out = {facts.name.c_str(),       rt::ToDlType(facts.dtype),
            facts.dtype_name.c_str(), static_cast<int32_t>(facts.shape.size()),
            facts.shape.data(),       facts.bytes};
    return absl::OkStatus();
  });
}

TwStatus Find(const std::vector<TensorFacts>& list, const char* name, size_t* index) {
  return Guarded([&]() -> absl::Status {
    if (name == nullptr || index == nullptr) return NullArgument("name or index");
    std::vector<std::string> names;
    for (size_t i = 0; i < list.size(); ++i) {
      names.push_back(list[i].name);
      if (list[i].name != name) continue;
      *index = i;
      return absl::OkStatus();
    }
    return support::NotFound("runtime.c_api.name", "expected one of " + support::Join(names, ", ") +
                                                       "; found " + support::Quote(name));
  });
}

}  // namespace

const char* tw_last_error(void) { return last_error.c_str(); }
const char* tw_runtime_version(void) { return support::Version(); }
uint32_t tw_abi_version(void) { return TW_ABI_VERSION; }

TwStatus tw_module_open(const char* path, TwModule** out) {
  return Guarded([&]() -> absl::Status {
    if (path == nullptr || out == nullptr) return NullArgument("path or out");
    return FinishOpen(mod::ModuleFile::Open(path), out);
  });
}

TwStatus tw_module_open_with_libraries(const char* path, const char* const* libraries,
                                       size_t num_libraries, TwModule** out) {
  return Guarded([&]() -> absl::Status {
    if (path == nullptr || out == nullptr || (libraries == nullptr && num_libraries > 0)) {
      return NullArgument("path, libraries or out");
    }
    rt::LoadOptions options;
    for (size_t i = 0; i < num_libraries; ++i) {
      if (libraries[i] == nullptr) return NullArgument("libraries");
      options.libraries.emplace_back(libraries[i]);
    }
    return FinishOpen(mod::ModuleFile::Open(path), out, options);
  });
}

TwStatus tw_module_open_memory(const void* bytes, size_t size, TwModule** out) {
  return Guarded([&]() -> absl::Status {
    if ((bytes == nullptr && size > 0) || out == nullptr) return NullArgument("bytes or out");
    const std::string_view view(static_cast<const char*>(bytes), size);
    return FinishOpen(mod::ModuleFile::FromBytes(view), out);
  });
}

void tw_module_close(TwModule* module) { delete module; }

const char* tw_module_name(const TwModule* module) {
  return module->loaded->manifest().name.c_str();
}
const char* tw_module_target(const TwModule* module) {
  return module->loaded->manifest().target.c_str();
}
const char* tw_module_manifest(const TwModule* module) { return module->manifest_json.c_str(); }

size_t tw_module_num_inputs(const TwModule* module) { return module->inputs.size(); }
size_t tw_module_num_outputs(const TwModule* module) { return module->outputs.size(); }

TwStatus tw_module_input(const TwModule* module, size_t index, TwTensorInfo* out) {
  return Info(module->inputs, index, out);
}
TwStatus tw_module_output(const TwModule* module, size_t index, TwTensorInfo* out) {
  return Info(module->outputs, index, out);
}
TwStatus tw_module_find_input(const TwModule* module, const char* name, size_t* index) {
  return Find(module->inputs, name, index);
}
TwStatus tw_module_find_output(const TwModule* module, const char* name, size_t* index) {
  return Find(module->outputs, name, index);
}

size_t tw_module_num_size_vars(const TwModule* module) {
  return module->loaded->manifest().size_vars.size();
}
TwStatus tw_module_size_var(const TwModule* module, size_t index, TwSizeVar* out) {
  return Guarded([&]() -> absl::Status {
    if (out == nullptr) return NullArgument("out");
    const std::vector<mod::SizeVar>& vars = module->loaded->manifest().size_vars;
    TW_TRY(CheckIndex(index, vars.size()));
    *out = {vars[index].name.c_str(), vars[index].min, vars[index].max};
    return absl::OkStatus();
  });
}
TwStatus tw_module_input_dim(const TwModule* module, size_t index, int32_t dim, TwDimInfo* out) {
  return DimInfo(module->inputs, index, dim, out);
}
TwStatus tw_module_output_dim(const TwModule* module, size_t index, int32_t dim, TwDimInfo* out) {
  return DimInfo(module->outputs, index, dim, out);
}
TwStatus tw_module_output_shape(const TwModule* module, const DLTensor* const* inputs,
                                size_t num_inputs, size_t index, int64_t* shape, int32_t ndim) {
  return Guarded([&]() -> absl::Status {
    if (inputs == nullptr && num_inputs > 0) return NullArgument("inputs");
    TW_ASSIGN(const std::vector<int64_t> found, OutputShape(*module, {inputs, num_inputs}, index));
    if (ndim != static_cast<int32_t>(found.size())) {
      return support::InvalidArgument(
          "runtime.c_api.rank",
          "expected ndim " + std::to_string(found.size()) + ", found " + std::to_string(ndim));
    }
    if (shape == nullptr && ndim > 0) return NullArgument("shape");
    std::copy(found.begin(), found.end(), shape);
    return absl::OkStatus();
  });
}

int tw_module_output_is_found(const TwModule* module, size_t index) {
  if (module == nullptr || index >= module->outputs.size()) return 0;
  const mod::Manifest& manifest = module->loaded->manifest();
  const int64_t id = module->main->outputs[index];
  return mod::DependsOn(manifest.tensors[static_cast<size_t>(id)].shape,
                        mod::FoundVariables(manifest))
             ? 1
             : 0;
}

TwStatus tw_session_create(TwModule* module, int num_threads, TwSession** out) {
  return Guarded([&]() -> absl::Status {
    if (module == nullptr || out == nullptr) return NullArgument("module or out");
    if (num_threads < 0) {
      return support::InvalidArgument("runtime.c_api.threads",
                                      "expected >= 0, found " + std::to_string(num_threads));
    }
    auto session = std::make_unique<TwSession>();
    rt::SessionOptions options;
    options.num_threads = num_threads == 0 ? rt::UsableCores() : num_threads;
    options.code_cache = rt::UserCodeCache();
    TW_ASSIGN(session->session, rt::Session::Create(module->loaded, options));
    *out = session.release();
    return absl::OkStatus();
  });
}

void tw_session_destroy(TwSession* session) { delete session; }

int tw_session_num_threads(const TwSession* session) { return session->session->num_threads(); }

TwStatus tw_session_call(TwSession* session, const DLTensor* const* inputs, size_t num_inputs,
                         const DLTensor* const* outputs, size_t num_outputs) {
  return Guarded([&]() -> absl::Status {
    if (session == nullptr) return NullArgument("session");
    if (inputs == nullptr && num_inputs > 0) return NullArgument("inputs");
    if (outputs == nullptr && num_outputs > 0) return NullArgument("outputs");
    return session->session->Call({inputs, num_inputs}, {outputs, num_outputs});
  });
}

TwStatus tw_session_set_input(TwSession* session, size_t index, const DLTensor* tensor) {
  return Guarded([&]() -> absl::Status {
    if (session == nullptr || tensor == nullptr) return NullArgument("session or tensor");
    return session->session->SetInput(index, *tensor);
  });
}

TwStatus tw_session_set_input_bytes(TwSession* session, size_t index, const void* data,
                                    size_t bytes) {
  return Guarded([&]() -> absl::Status {
    if (session == nullptr) return NullArgument("session");
    return session->session->SetInput(index, data, bytes);
  });
}

TwStatus tw_session_set_input_shape(TwSession* session, size_t index, const int64_t* shape,
                                    int32_t ndim) {
  return Guarded([&]() -> absl::Status {
    if (session == nullptr) return NullArgument("session");
    if (shape == nullptr && ndim > 0) return NullArgument("shape");
    return session->session->SetInputShape(index, {shape, static_cast<size_t>(std::max(ndim, 0))});
  });
}

TwStatus tw_session_run(TwSession* session) {
  return Guarded([&]() -> absl::Status {
    if (session == nullptr) return NullArgument("session");
    return session->session->Run();
  });
}

TwStatus tw_session_get_output(TwSession* session, size_t index, DLTensor* out) {
  return Guarded([&]() -> absl::Status {
    if (session == nullptr || out == nullptr) return NullArgument("session or out");
    return session->session->GetOutput(index, out);
  });
}

TwStatus tw_session_run_profiled(TwSession* session, const TwLaunchTime** times, size_t* count) {
  return Guarded([&]() -> absl::Status {
    if (session == nullptr || times == nullptr || count == nullptr) return NullArgument("argument");
    std::span<const TwLaunchTime> launches;
    TW_TRY(session->session->RunProfiled(&launches));
    *times = launches.data();
    *count = launches.size();
    return absl::OkStatus();
  });
}

TwStatus tw_session_state_length(const TwSession* session, int64_t* length, int64_t* most) {
  return Guarded([&]() -> absl::Status {
    if (session == nullptr) return NullArgument("session");
    const mod::Manifest& manifest = session->session->module().manifest();
    const int v = manifest.StateVariable();
    if (length != nullptr) *length = session->session->state_length();
    if (most != nullptr) *most = v < 0 ? 0 : manifest.size_vars[static_cast<size_t>(v)].max;
    return absl::OkStatus();
  });
}

TwStatus tw_session_reset_state(TwSession* session, int64_t length) {
  return Guarded([&]() -> absl::Status {
    if (session == nullptr) return NullArgument("session");
    return session->session->ResetState(length);
  });
}
