// The manifest's canonical JSON. The writer emits every key; the reader knows every key and refuses
// others, so that a misspelt or later field is an error and not a silent loss.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "deploy/module/manifest.h"
#include "deploy/support/status.h"
#include "nlohmann/json.hpp"

namespace tilewright::module {
namespace {

using Json = nlohmann::json;
using support::DataLoss;

constexpr size_t kMaxJsonBytes = size_t{16} << 20;
constexpr int kMaxJsonDepth = 16;
// Of expressions over size variables.
constexpr size_t kMaxDimText = 1024;
constexpr size_t kMaxDims = 4096;

constexpr std::pair<TensorKind, const char*> kTensorKinds[] = {
    {TensorKind::kInput, "input"},       {TensorKind::kOutput, "output"},
    {TensorKind::kConstant, "constant"}, {TensorKind::kIntermediate, "intermediate"},
    {TensorKind::kPrepared, "prepared"}, {TensorKind::kState, "state"},
};
constexpr std::pair<Distribution::Kind, const char*> kDistributions[] = {
    {Distribution::Kind::kUniform, "uniform"},
    {Distribution::Kind::kNormal, "normal"},
    {Distribution::Kind::kIntRange, "int_range"},
};

template <typename Enum, size_t N>
const char* NameOf(const std::pair<Enum, const char*> (&table)[N], Enum value) {
  for (const auto& row : table) {
    if (row.first == value) return row.second;
  }
  return "";
}

// --- writing
// ---------------------------------------------------------------------------------------

Json DimToJson(const Dim& dim) {
  return dim.constant() ? Json(*dim.constant()) : Json(dim.ToText());
}

Json DimsToJson(const std::vector<Dim>& dims) {
  Json out = Json::array();
  for (const Dim& dim : dims) out.push_back(DimToJson(dim));
  return out;
}

Json TensorToJson(const Tensor& t) {
  Json out{{"id", t.id},
           {"name", t.name},
           {"dtype", std::string(DTypeName(t.dtype))},
           {"shape", DimsToJson(t.shape)},
           {"kind", NameOf(kTensorKinds, t.kind)},
           {"offset", t.offset},
           {"bytes", t.bytes}};
  if (!t.after.empty()) out["after"] = t.after;
  if (t.entries_of) out["entries_of"] = *t.entries_of;
  if (t.same_list) out["same_list"] = *t.same_list;
  return out;
}

Json LaunchToJson(const Launch& l) {
  Json out{{"symbol", l.symbol},
           {"code", l.code},
           {"args", l.args},
           {"num_outputs", l.num_outputs},
           {"sizes", DimsToJson(l.sizes)},
           {"workspace_bytes", DimToJson(l.workspace_bytes)},
           {"name", l.name},
           {"task", l.task},
           {"steps", l.steps},
           {"program_hash", l.program_hash},
           {"flops", l.open_flops ? DimToJson(*l.open_flops) : Json(l.flops)}};
  if (l.has_grid()) out["grid"] = l.grid;
  if (l.has_grid()) out["group"] = l.group;
  return out;
}

template <typename T, typename Fn>
Json ListToJson(const std::vector<T>& items, Fn to_json) {
  Json out = Json::array();
  for (const T& item : items) out.push_back(to_json(item));
  return out;
}

Json SizeCheckToJson(const SizeCheck& check) {
  return Json{
      {"tensor", check.tensor}, {"expected", DimsToJson(check.expected)}, {"what", check.what}};
}

Json CarriedToJson(const Loop::Carried& carried) {
  return Json{{"init", carried.init}, {"value", carried.value}, {"next", carried.next}};
}

Json StackedToJson(const Loop::Stacked& stacked) {
  return Json{{"part", stacked.part}, {"whole", stacked.whole}};
}

Json LoopToJson(const Loop& loop) {
  return Json{{"first", loop.first},
              {"end", loop.end},
              {"carried", ListToJson(loop.carried, CarriedToJson)},
              {"stacked", ListToJson(loop.stacked, StackedToJson)}};
}

Json FunctionToJson(const Function& f) {
  Json out{{"name", f.name},
           {"inputs", f.inputs},
           {"outputs", f.outputs},
           {"prepare", ListToJson(f.prepare, LaunchToJson)},
           {"launches", ListToJson(f.launches, LaunchToJson)}};
  if (!f.checks.empty()) out["checks"] = ListToJson(f.checks, SizeCheckToJson);
  if (!f.loops.empty()) out["loops"] = ListToJson(f.loops, LoopToJson);
  if (!f.at.empty()) out["at"] = f.at;
  return out;
}

Json InputSpecToJson(const InputSpec& input) {
  const Distribution& d = input.distribution;
  Json out{{"tensor", input.tensor},
           {"seed", input.seed},
           {"distribution", NameOf(kDistributions, d.kind)},
           {"a", d.a},
           {"b", d.b}};
  if (input.cold) out["far"] = true;  // its older name, which agents know
  return out;
}

Json MeasurementToJson(const Measurement& m) {
  return Json{{"inputs", ListToJson(m.inputs, InputSpecToJson)},
              {"expected_digest", m.expected_digest},
              {"tolerance", Json{{"abs", m.tolerance.abs}, {"rel", m.tolerance.rel}}},
              {"flops", m.flops}};
}

Json ToJson(const Manifest& m) {
  Json out{{"format_version", m.format_version},
           {"name", m.name},
           {"producer", m.producer},
           {"target", m.target},
           {"cpu_features", m.cpu_features},
           {"tensors", ListToJson(m.tensors, TensorToJson)},
           {"size_vars", ListToJson(m.size_vars,
                                    [](const SizeVar& v) {
                                      return Json{{"name", v.name}, {"min", v.min}, {"max", v.max}};
                                    })},
           {"arena_bytes", m.arena_bytes},
           {"workspace_bytes", m.workspace_bytes},
           {"constants_bytes", m.constants_bytes},
           {"constants_digest", m.constants_digest},
           {"functions", ListToJson(m.functions, FunctionToJson)},
           {"code", ListToJson(m.code,
                               [](const CodeObject& c) {
                                 Json out{{"format", c.format},
                                          {"abi_version", c.abi_version},
                                          {"size", c.size},
                                          {"digest", c.digest}};
                                 if (!c.device.empty()) out["device"] = c.device;
                                 if (!c.features.empty()) out["features"] = c.features;
                                 return out;
                               })},
           {"provenance", m.provenance}};
  if (m.alignment != kTensorAlignment) out["alignment"] = m.alignment;
  if (m.state) out["state"] = {{"length", m.state->length}, {"next", DimToJson(m.state->next)}};
  if (!m.equal_sizes.empty()) {
    out["equal_sizes"] = ListToJson(m.equal_sizes, [](const SizeEquality& e) {
      return Json{{"left", DimToJson(e.left)}, {"right", DimToJson(e.right)}, {"what", e.what}};
    });
  }
  if (m.measurement.has_value()) out["measurement"] = MeasurementToJson(*m.measurement);
  return out;
}

// --- reading
// ---------------------------------------------------------------------------------------

bool IsInt64(const Json& value) {
  if (value.is_number_unsigned()) {
    return value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
  }
  return value.is_number_integer();
}

// Reads the members of one JSON object. The first error sticks; Done() returns it, or names a
// member that nobody asked for.
class Fields {
 public:
  Fields(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) Fail("expected an object");
  }

  void Get(const char* key, int64_t* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!IsInt64(*value)) return Fail(std::string(key) + ": expected an integer");
    *out = value->get<int64_t>();
  }
  void Get(const char* key, uint64_t* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_number_unsigned()) {
      return Fail(std::string(key) + ": expected an integer >= 0");
    }
    *out = value->get<uint64_t>();
  }
  void Get(const char* key, double* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_number()) return Fail(std::string(key) + ": expected a number");
    *out = value->get<double>();
  }
  void Get(const char* key, std::string* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_string()) return Fail(std::string(key) + ": expected a string");
    *out = value->get_ref<const std::string&>();
  }
  void Get(const char* key, std::vector<int64_t>* out) {
    List(key, [&](const Json& item, const std::string& where) {
      if (!IsInt64(item)) return DataLoss("module.manifest.type", where + ": expected an integer");
      out->push_back(item.get<int64_t>());
      return absl::OkStatus();
    });
  }
  void Get(const char* key, std::vector<std::string>* out) {
    List(key, [&](const Json& item, const std::string& where) {
      if (!item.is_string()) return DataLoss("module.manifest.type", where + ": expected a string");
      out->push_back(item.get_ref<const std::string&>());
      return absl::OkStatus();
    });
  }
  void Get(const char* key, std::map<std::string, std::string>* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_object()) return Fail(std::string(key) + ": expected an object");
    for (const auto& [name, item] : value->items()) {
      if (!item.is_string()) return Fail(std::string(key) + ": expected strings as values");
      (*out)[name] = item.get_ref<const std::string&>();
    }
  }
  // A word of a fixed table.
  template <typename Enum, size_t N>
  void Get(const char* key, const std::pair<Enum, const char*> (&table)[N], Enum* out) {
    std::string word;
    Get(key, &word);
    if (!status_.ok()) return;
    for (const auto& row : table) {
      if (word == row.second) {
        *out = row.first;
        return;
      }
    }
    Fail(std::string(key) + ": unknown word '" + word.substr(0, 64) + "'");
  }
  // Every element of an array through `read(element, where)`.
  template <typename Fn>
  void List(const char* key, Fn read) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_array()) return Fail(std::string(key) + ": expected an array");
    for (size_t i = 0; i < value->size() && status_.ok(); ++i) {
      status_ = read((*value)[i], Path(key) + "[" + std::to_string(i) + "]");
    }
  }
  // One member through `read(value, where)`.
  template <typename Fn>
  void Item(const char* key, Fn read) {
    const Json* value = Find(key);
    if (value != nullptr) status_ = read(*value, Path(key));
  }
  template <typename Fn>
  void OptionalList(const char* key, Fn read) {
    if (status_.ok() && json_.contains(key)) List(key, read);
  }
  // A member that may be absent.
  const Json* Optional(const char* key) {
    if (!status_.ok()) return nullptr;
    const auto it = json_.find(key);
    if (it == json_.end()) return nullptr;
    ++used_;
    return &*it;
  }

  void OptionalBool(const char* key, bool* out) {
    const Json* value = Optional(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return Fail(std::string(key) + ": expected true or false");
    *out = value->get<bool>();
  }

  void OptionalInts(const char* key, std::vector<int64_t>* out) {
    if (status_.ok() && json_.contains(key)) Get(key, out);
  }
  void OptionalInt(const char* key, std::optional<int64_t>* out) {
    if (status_.ok() && json_.contains(key)) Get(key, &out->emplace());
  }
  void OptionalInt(const char* key, int64_t* out) {
    if (status_.ok() && json_.contains(key)) Get(key, out);
  }
  void OptionalSizes(const char* key, Sizes* out) {
    const Json* value = Optional(key);
    if (value == nullptr) return;
    if (!value->is_object()) return Fail(std::string(key) + ": expected an object");
    for (const auto& [name, item] : value->items()) {
      if (!IsInt64(item)) return Fail(std::string(key) + ": expected integers as values");
      (*out)[name] = item.get<int64_t>();
    }
  }
  void OptionalTexts(const char* key, std::vector<std::string>* out) {
    if (status_.ok() && json_.contains(key)) Get(key, out);
  }
  void OptionalText(const char* key, std::string* out) {
    const Json* value = Optional(key);
    if (value == nullptr) return;
    if (!value->is_string()) return Fail(std::string(key) + ": expected text");
    *out = value->get<std::string>();
  }

  // Three integers; zeros where the member is absent.
  void OptionalExtents(const char* key, std::array<int64_t, 3>* out) {
    const Json* value = Optional(key);
    if (value == nullptr) return;
    if (!value->is_array() || value->size() != out->size() ||
        !std::all_of(value->begin(), value->end(), IsInt64)) {
      return Fail(std::string(key) + ": expected three integers");
    }
    for (size_t i = 0; i < out->size(); ++i) (*out)[i] = (*value)[i].get<int64_t>();
  }

  std::string Path(const char* key) const { return where_.empty() ? key : where_ + "." + key; }

  absl::Status Done() {
    if (status_.ok() && used_ != json_.size()) {
      Fail("expected " + std::to_string(used_) + " members, found " + std::to_string(json_.size()));
    }
    return status_;
  }

 private:
  const Json* Find(const char* key) {
    if (!status_.ok()) return nullptr;
    const Json* value = Optional(key);
    if (value == nullptr) Fail("expected the member '" + std::string(key) + "'");
    return value;
  }
  void Fail(const std::string& text) {
    if (!status_.ok()) return;
    status_ = DataLoss("module.manifest.type", where_.empty() ? text : where_ + ": " + text);
  }

  const Json& json_;
  std::string where_;
  absl::Status status_;
  size_t used_ = 0;
};

// Reads numbers and expressions. Each text is parsed once and their number is bounded: hostile
// texts take long to parse.
class DimReader {
 public:
  absl::Status Read(const Json& json, const std::string& where, Dim* out) {
    if (IsInt64(json)) {
      *out = Dim(json.get<int64_t>());
      return absl::OkStatus();
    }
    if (!json.is_string()) {
      return DataLoss("module.manifest.type", where + ": expected an integer or an expression");
    }
    const auto& text = json.get_ref<const std::string&>();
    const auto known = known_.find(text);
    if (known != known_.end()) {
      *out = known->second;
      return absl::OkStatus();
    }
    if (text.size() > kMaxDimText || known_.size() == kMaxDims) {
      return DataLoss("module.manifest.expression", where + ": expected fewer or shorter ones");
    }
    const absl::StatusOr<Dim> dim = Dim::Parse(text);
    if (!dim.ok()) {
      return DataLoss("module.manifest.expression",
                      where + ": " + std::string(dim.status().message()));
    }
    if (dim->constant() || dim->ToText() != text) {
      return DataLoss("module.manifest.expression",
                      where + ": expected the canonical '" + dim->ToText() + "'");
    }
    *out = known_.emplace(text, *dim).first->second;
    return absl::OkStatus();
  }
  auto Into(std::vector<Dim>* out) {
    return [this, out](const Json& item, const std::string& where) {
      return Read(item, where, &out->emplace_back());
    };
  }

 private:
  std::map<std::string, Dim> known_;
};

absl::Status ReadTensor(const Json& json, const std::string& where, DimReader* dims, Tensor* t) {
  Fields fields(json, where);
  std::string dtype;
  fields.Get("id", &t->id);
  fields.Get("name", &t->name);
  fields.Get("dtype", &dtype);
  fields.List("shape", dims->Into(&t->shape));
  fields.Get("kind", kTensorKinds, &t->kind);
  fields.Get("offset", &t->offset);
  fields.Get("bytes", &t->bytes);
  fields.OptionalInts("after", &t->after);
  fields.OptionalInt("entries_of", &t->entries_of);
  fields.OptionalInt("same_list", &t->same_list);
  TW_TRY(fields.Done());
  const std::optional<DType> parsed = DTypeFromName(dtype);
  if (!parsed.has_value()) {
    return DataLoss("module.manifest.dtype", where + ": unknown '" + dtype.substr(0, 64) + "'");
  }
  t->dtype = *parsed;
  return absl::OkStatus();
}

absl::Status ReadLaunch(const Json& json, const std::string& where, DimReader* dims, Launch* l) {
  Fields fields(json, where);
  fields.Get("symbol", &l->symbol);
  fields.Get("code", &l->code);
  fields.Get("args", &l->args);
  fields.Get("num_outputs", &l->num_outputs);
  fields.List("sizes", dims->Into(&l->sizes));
  fields.Item("workspace_bytes", [&](const Json& item, const std::string& at) {
    return dims->Read(item, at, &l->workspace_bytes);
  });
  fields.Get("name", &l->name);
  fields.Get("task", &l->task);
  fields.Get("steps", &l->steps);
  fields.Get("program_hash", &l->program_hash);
  fields.Item("flops", [&](const Json& item, const std::string& at) {
    if (item.is_string()) return dims->Read(item, at, &l->open_flops.emplace());
    if (!item.is_number()) return DataLoss("module.manifest.type", at + ": expected a number");
    l->flops = item.get<double>();
    return absl::OkStatus();
  });
  fields.OptionalExtents("grid", &l->grid);
  fields.OptionalExtents("group", &l->group);
  return fields.Done();
}

absl::Status ReadSizeVar(const Json& json, const std::string& where, SizeVar* v) {
  Fields fields(json, where);
  fields.Get("name", &v->name);
  fields.Get("min", &v->min);
  fields.Get("max", &v->max);
  return fields.Done();
}

absl::Status ReadSizeEquality(const Json& json, const std::string& where, DimReader* dims,
                              SizeEquality* e) {
  Fields fields(json, where);
  fields.Item("left", [&](const Json& item, const std::string& at) {
    return dims->Read(item, at, &e->left);
  });
  fields.Item("right", [&](const Json& item, const std::string& at) {
    return dims->Read(item, at, &e->right);
  });
  fields.Get("what", &e->what);
  return fields.Done();
}

absl::Status ReadCode(const Json& json, const std::string& where, CodeObject* c) {
  Fields fields(json, where);
  fields.Get("format", &c->format);
  fields.Get("abi_version", &c->abi_version);
  fields.Get("size", &c->size);
  fields.Get("digest", &c->digest);
  fields.OptionalText("device", &c->device);
  fields.OptionalTexts("features", &c->features);
  return fields.Done();
}

// Adapts a `ReadX(json, where, X*)` to a list member; or one that reads dimensions.
template <typename T>
auto Into(std::vector<T>* out, absl::Status (*read)(const Json&, const std::string&, T*)) {
  return [out, read](const Json& item, const std::string& where) {
    return read(item, where, &out->emplace_back());
  };
}

template <typename T>
auto Into(std::vector<T>* out, DimReader* dims,
          absl::Status (*read)(const Json&, const std::string&, DimReader*, T*)) {
  return [out, dims, read](const Json& item, const std::string& where) {
    return read(item, where, dims, &out->emplace_back());
  };
}

absl::Status ReadSizeCheck(const Json& json, const std::string& where, DimReader* dims,
                           SizeCheck* check) {
  Fields fields(json, where);
  fields.Get("tensor", &check->tensor);
  fields.List("expected", dims->Into(&check->expected));
  fields.Get("what", &check->what);
  return fields.Done();
}

absl::Status ReadCarried(const Json& json, const std::string& where, Loop::Carried* carried) {
  Fields fields(json, where);
  fields.Get("init", &carried->init);
  fields.Get("value", &carried->value);
  fields.Get("next", &carried->next);
  return fields.Done();
}

absl::Status ReadStacked(const Json& json, const std::string& where, Loop::Stacked* stacked) {
  Fields fields(json, where);
  fields.Get("part", &stacked->part);
  fields.Get("whole", &stacked->whole);
  return fields.Done();
}

absl::Status ReadLoop(const Json& json, const std::string& where, Loop* loop) {
  Fields fields(json, where);
  fields.Get("first", &loop->first);
  fields.Get("end", &loop->end);
  fields.List("carried", Into(&loop->carried, ReadCarried));
  fields.List("stacked", Into(&loop->stacked, ReadStacked));
  return fields.Done();
}

absl::Status ReadFunction(const Json& json, const std::string& where, DimReader* dims,
                          Function* f) {
  Fields fields(json, where);
  fields.Get("name", &f->name);
  fields.Get("inputs", &f->inputs);
  fields.Get("outputs", &f->outputs);
  fields.List("prepare", Into(&f->prepare, dims, ReadLaunch));
  fields.List("launches", Into(&f->launches, dims, ReadLaunch));
  fields.OptionalList("checks", Into(&f->checks, dims, ReadSizeCheck));
  fields.OptionalList("loops", Into(&f->loops, ReadLoop));
  fields.OptionalSizes("at", &f->at);
  return fields.Done();
}

absl::Status ReadInputSpec(const Json& json, const std::string& where, InputSpec* input) {
  Fields fields(json, where);
  fields.Get("tensor", &input->tensor);
  fields.Get("seed", &input->seed);
  fields.Get("distribution", kDistributions, &input->distribution.kind);
  fields.Get("a", &input->distribution.a);
  fields.Get("b", &input->distribution.b);
  fields.OptionalBool("far", &input->cold);
  return fields.Done();
}

absl::Status ReadMeasurement(const Json& json, Measurement* m) {
  Fields fields(json, "measurement");
  fields.List("inputs", Into(&m->inputs, ReadInputSpec));
  fields.Get("expected_digest", &m->expected_digest);
  fields.Get("flops", &m->flops);
  const Json* tolerance = fields.Optional("tolerance");
  TW_TRY(fields.Done());
  if (tolerance == nullptr) {
    return DataLoss("module.manifest.type", "measurement: expected the member 'tolerance'");
  }
  Fields parts(*tolerance, "measurement.tolerance");
  parts.Get("abs", &m->tolerance.abs);
  parts.Get("rel", &m->tolerance.rel);
  return parts.Done();
}

absl::Status ReadState(const Json& json, DimReader* dims, State* state) {
  Fields fields(json, "state");
  fields.Get("length", &state->length);
  fields.Item("next", [&](const Json& item, const std::string& at) {
    return dims->Read(item, at, &state->next);
  });
  return fields.Done();
}

absl::Status ReadManifest(const Json& json, Manifest* m) {
  DimReader dims;
  Fields fields(json, "");
  fields.Get("format_version", &m->format_version);
  fields.Get("name", &m->name);
  fields.Get("producer", &m->producer);
  fields.Get("target", &m->target);
  fields.Get("cpu_features", &m->cpu_features);
  fields.List("tensors", Into(&m->tensors, &dims, ReadTensor));
  fields.List("size_vars", Into(&m->size_vars, ReadSizeVar));
  fields.OptionalList("equal_sizes", Into(&m->equal_sizes, &dims, ReadSizeEquality));
  fields.Get("arena_bytes", &m->arena_bytes);
  fields.Get("workspace_bytes", &m->workspace_bytes);
  fields.Get("constants_bytes", &m->constants_bytes);
  fields.Get("constants_digest", &m->constants_digest);
  fields.List("functions", Into(&m->functions, &dims, ReadFunction));
  fields.List("code", Into(&m->code, ReadCode));
  fields.Get("provenance", &m->provenance);
  fields.OptionalInt("alignment", &m->alignment);
  const Json* state = fields.Optional("state");
  const Json* measurement = fields.Optional("measurement");
  TW_TRY(fields.Done());
  if (state != nullptr) TW_TRY(ReadState(*state, &dims, &m->state.emplace()));
  if (measurement == nullptr) return absl::OkStatus();
  return ReadMeasurement(*measurement, &m->measurement.emplace());
}

// The parser builds its tree before anything can be checked, so nesting is bounded beforehand.
bool DepthWithin(std::string_view text, int limit) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > limit) return false;
  }
  return true;
}

absl::Status CheckVersion(const Json& json) {
  const auto version = json.is_object() ? json.find("format_version") : json.end();
  if (version != json.end() && version->is_number_unsigned() &&
      version->get<uint64_t>() > static_cast<uint64_t>(kNewestFormatVersion)) {
    return support::Unimplemented("module.manifest.version",
                                  "expected at most " + std::to_string(kNewestFormatVersion) +
                                      ", found " + std::to_string(version->get<uint64_t>()) +
                                      ": the module was made by a later version");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ManifestToJson(const Manifest& manifest) {
  TW_TRY(ValidateManifest(manifest));
  try {
    return ToJson(manifest).dump(-1, ' ', false, Json::error_handler_t::strict);
  } catch (const Json::exception&) {
    return support::InvalidArgument("module.manifest.utf8", "expected UTF-8 in all texts");
  }
}

absl::StatusOr<Manifest> ManifestFromJson(std::string_view json) {
  if (json.size() > kMaxJsonBytes) {
    return DataLoss("module.manifest.size", std::to_string(json.size()) + " bytes of JSON");
  }
  if (!DepthWithin(json, kMaxJsonDepth)) {
    return DataLoss("module.manifest.depth", "JSON is nested too deep");
  }
  const Json parsed = Json::parse(json, nullptr, false);
  if (parsed.is_discarded()) return DataLoss("module.manifest.json", "text is not JSON");
  TW_TRY(CheckVersion(parsed));
  Manifest manifest;
  TW_TRY(ReadManifest(parsed, &manifest));
  const absl::Status valid = ValidateManifest(manifest);
  if (!valid.ok()) return absl::DataLossError(valid.message());
  return manifest;
}

}  // namespace tilewright::module
