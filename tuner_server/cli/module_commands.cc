#include "tuner_server/cli/module_commands.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "deploy/module/manifest.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/module_ends.h"
#include "tuner_server/cli/native_target.h"
#include "tuner_server/jobs/size_messages.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

constexpr uint64_t kMostModuleManifest = 16 << 20;
constexpr char kDefaultProject[] = "projects/default";

std::string DigestHex(const v1::Digest& digest) { return support::HexEncode(digest.hash()); }

template <typename Signatures>
nlohmann::json SignaturesJson(const Signatures& signatures) {
  nlohmann::json rows = nlohmann::json::array();
  for (const v1::ModuleSignature& signature : signatures) {
    rows.push_back({{"key_id", signature.key_id()},
                    {"format", signature.format() == 0 ? 1 : signature.format()},
                    {"created_by", signature.created_by()},
                    {"create_time", TimestampText(signature.create_time())}});
    if (!signature.has_revoke_time()) continue;
    rows.back()["revoke_time"] = TimestampText(signature.revoke_time());
    rows.back()["revoked_by"] = signature.revoked_by();
    rows.back()["revoke_reason"] = signature.revoke_reason();
  }
  return rows;
}

nlohmann::json RecordsJson(const v1::ModuleVersion& version) {
  nlohmann::json rows = nlohmann::json::array();
  for (const v1::RecordOrigin& record : version.records()) {
    rows.push_back({{"measurement_id", record.measurement_id()},
                    {"task", record.task()},
                    {"device", record.device()},
                    {"device_fingerprint", record.device_fingerprint()},
                    {"agent", record.agent()},
                    {"toolchain", record.toolchain()},
                    {"median_us", record.median_us()},
                    {"measure_time", TimestampText(record.measure_time())}});
  }
  return rows;
}

std::string AliasesText(const v1::ModuleVersion& version) {
  return version.aliases().empty() ? "-" : support::Join(version.aliases(), ",");
}

std::string SignersText(const v1::ModuleVersion& version) {
  std::set<std::string> keys;
  for (const v1::ModuleSignature& signature : version.signatures()) {
    keys.insert(signature.key_id());
  }
  return keys.empty() ? "-" : support::Join(keys, ",");
}

// What its job said of sizes; "-" if it said nothing.
std::string SizesText(const v1::ModuleVersion& version) {
  return version.has_sizes() ? jobs::SizesOf(version.sizes()).Words() : "-";
}

// What the question says about time.
absl::Status AddLimits(const ModuleQuestion& question, v1::ResolveModuleRequest* request) {
  if (!question.max_latency.empty()) {
    TW_ASSIGN(const double us, ParseLatency(question.max_latency));
    request->set_max_latency_us(us);
  }
  if (question.not_slower_than.empty()) return absl::OkStatus();
  const bool number = support::ParseInt64(question.not_slower_than).has_value();
  const std::string module = question.module.substr(0, question.module.find_first_of("/@"));
  TW_ASSIGN(const ModuleRef limit,
            ParseModule(number ? StrCat(module, "/", question.not_slower_than)
                               : question.not_slower_than));
  if (limit.number <= 0) {
    return support::InvalidArgument("cli.usage.module",
                                    "expected --not-slower-than NUMBER or NAME/NUMBER, found " +
                                        support::Quote(question.not_slower_than));
  }
  request->set_not_slower_than(StrCat(limit.module, "/versions/", limit.number));
  return absl::OkStatus();
}

// A server that answers with another module or number than asked for is not trusted with the rest.
absl::Status CheckAnswer(const std::string& parent, const v1::ModuleVersion& version,
                         int64_t number) {
  const bool named = parent == kDefaultProject || version.name().starts_with(parent + "/versions/");
  const bool numbered = version.name().ends_with(StrCat("/versions/", version.number())) &&
                        (number == 0 || version.number() == number);
  if (named && numbered) return absl::OkStatus();
  return support::FailedPrecondition(
      "module.answer.other", StrCat("expected a version of ", parent,
                                    number == 0 ? std::string() : StrCat(" with number ", number),
                                    ", the server sent ", support::Quote(version.name())));
}

std::string RecordsTable(const v1::ModuleVersion& version) {
  Table table({{"measurement"}, {"median", true}, {"device"}, {"agent"}, {"measured (UTC)"}});
  for (const v1::RecordOrigin& record : version.records()) {
    table.AddRow({record.measurement_id(),
                  ValueText(record.median_us() * 1e3, support::UnitOfClass(version.device_class())),
                  LastPart(record.device()), record.agent(), TimestampText(record.measure_time())});
  }
  return table.Render();
}

// What the module takes and gives. The server keeps its manifest as an artifact. Returns nullopt if
// that was dropped, or if this program is too old to read it.
absl::StatusOr<std::optional<module::Manifest>> ManifestOf(ServerClient& client,
                                                           const v1::ModuleVersion& version) {
  TW_ASSIGN(const support::TempDir folder, support::TempDir::Create("manifest"));
  const std::string path = folder.File("manifest.json");
  const absl::StatusOr<int64_t> moved = client.Download(version.manifest(), path);
  if (absl::IsNotFound(moved.status())) return std::nullopt;
  TW_TRY(moved.status());
  TW_ASSIGN(const std::string text, support::ReadFile(path, kMostModuleManifest));
  absl::StatusOr<module::Manifest> manifest = module::ManifestFromJson(text);
  if (absl::IsUnimplemented(manifest.status())) return std::nullopt;
  TW_TRY(manifest.status());
  if (manifest->FindFunction("main") == nullptr) return std::nullopt;
  return *std::move(manifest);
}

void AddEnds(const module::Manifest& manifest, nlohmann::json* out) {
  const module::Function& main = *manifest.FindFunction("main");
  (*out)["inputs"] = EndsJson(manifest, main.inputs);
  (*out)["outputs"] = EndsJson(manifest, main.outputs);
  (*out)["size_vars"] = SizeVarsJson(manifest);
  (*out)["specialisations"] = SpecialisationsJson(manifest);
}

std::string EndsLines(const module::Manifest& manifest) {
  const module::Function& main = *manifest.FindFunction("main");
  std::string text = StrCat("\ninputs    ", EndsText(manifest, main.inputs), "\noutputs   ",
                            EndsText(manifest, main.outputs));
  if (manifest.open_sizes()) text += "\nsizes     " + SizeBoundsText(manifest);
  const std::string special = SpecialisationsText(manifest);
  if (!special.empty()) text += "\nfunctions main, " + special;
  return text;
}

}  // namespace

std::string TargetText(const v1::ModuleVersion& version) {
  const auto it = version.target().find("target");
  return it == version.target().end() ? "-" : it->second.s();
}

absl::StatusOr<double> ParseLatency(const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}};
  for (const auto& [unit, us] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const auto value = support::ParseDouble(text.substr(0, text.size() - unit.size()));
    if (value && *value > 0) return *value * us;
    break;
  }
  return support::InvalidArgument(
      "cli.usage.latency", "expected a time as 100us, 1.5ms or 2s, found " + support::Quote(text));
}

nlohmann::json VersionJson(const v1::ModuleVersion& version) {
  nlohmann::json files = nlohmann::json::array();
  for (const v1::ModuleFile& file : version.files()) {
    files.push_back({{"path", file.path()},
                     {"sha256", DigestHex(file.digest())},
                     {"bytes", file.digest().size_bytes()},
                     {"media_type", file.media_type()}});
  }
  return {{"name", version.name()},
          {"number", version.number()},
          {"target", TargetText(version)},
          {"sizes", SizesJson(jobs::SizesOf(version.sizes()))},
          {"files", files},
          {"aliases", std::vector<std::string>(version.aliases().begin(), version.aliases().end())},
          {"signatures", SignaturesJson(version.signatures())},
          {"revoked_signatures", SignaturesJson(version.revoked_signatures())},
          {"state", support::ToLower(v1::ModuleVersion::State_Name(version.state()))},
          {"device_class", version.device_class()},
          {"created_by", version.created_by()},
          {"toolchain", version.toolchain()},
          {"records", RecordsJson(version)},
          {"etag", version.etag()},
          {"source_job", version.source_job()},
          {"model_sha256", DigestHex(version.model())},
          {"median_us", version.performance().median_us()},
          {"speedup", version.performance().speedup_vs_baseline()},
          {"create_time", TimestampText(version.create_time())}};
}

absl::StatusOr<ModuleRef> ParseModule(std::string text) {
  constexpr std::string_view kPrefix = "projects/default/modules/";
  if (text.starts_with(kPrefix)) text = text.substr(kPrefix.size());
  ModuleRef ref;
  const size_t at = text.rfind('@');
  if (at != std::string::npos) {
    ref.alias = text.substr(at + 1);
    text.resize(at);
  }
  const std::vector<std::string> parts = support::Split(text, '/');
  const bool with_version = parts.size() == 2 || (parts.size() == 3 && parts[1] == "versions");
  const auto number = with_version ? support::ParseInt64(parts.back()) : std::optional<int64_t>(0);
  if (parts[0].empty() || parts.size() > 3 || (parts.size() > 1 && !with_version) || !number ||
      (at != std::string::npos && (ref.alias.empty() || with_version))) {
    return support::InvalidArgument(
        "cli.usage.module",
        "expected MODULE, MODULE/NUMBER or MODULE@ALIAS, found " + support::Quote(text));
  }
  ref.module = std::string(kPrefix) + parts[0];
  ref.number = *number;
  return ref;
}

absl::StatusOr<v1::ModuleVersion> FindModule(ServerClient& client, const std::string& name) {
  TW_ASSIGN(ModuleRef ref, ParseModule(name));
  if (ref.number > 0) {
    v1::GetModuleVersionRequest request;
    request.set_name(StrCat(ref.module, "/versions/", ref.number));
    TW_ASSIGN(v1::ModuleVersion version,
              client.Call(client.modules(), &v1::ModuleService::Stub::GetModuleVersion, request));
    TW_TRY(CheckAnswer(ref.module, version, ref.number));
    return version;
  }
  ModuleQuestion question;
  question.module = name;
  TW_ASSIGN(const v1::ResolveModuleResponse answer, ResolveModule(client, question));
  return answer.version();
}

absl::StatusOr<v1::ResolveModuleResponse> ResolveModule(ServerClient& client,
                                                        const ModuleQuestion& question) {
  v1::ResolveModuleRequest request;
  request.set_parent(kDefaultProject);
  ModuleRef ref;
  if (!question.module.empty()) {
    TW_ASSIGN(ref, ParseModule(question.module));
    request.set_parent(ref.module);
    request.set_alias(ref.alias);
    request.set_number(ref.number);
    if (ref.number > 0) request.set_constraint(StrCat(ref.number));  // for older servers
  }
  if (!question.model.empty()) {
    const auto digest = support::HexDecode(question.model);
    if (digest && digest->size() == 32) {
      *request.mutable_model() = daemon::MakeDigest(question.model, 0);
    } else {
      TW_ASSIGN(const support::MappedFile model, support::MappedFile::Open(question.model));
      *request.mutable_model() = daemon::MakeDigest(support::Sha256Hex(model.view()), 0);
    }
  }
  if (!question.target.empty()) {
    TW_ASSIGN(const std::string target, ExpandTarget(question.target));
    request.set_target(target);
  } else if (ref.number == 0 && ref.alias.empty()) {
    request.set_preferred_target(ExpandTarget("native").value_or(""));
  }
  TW_TRY(AddLimits(question, &request));
  TW_ASSIGN(const log::ModelSizes sizes, ParseSizes(question.sizes));
  if (!sizes.empty()) jobs::PutSizes(sizes, request.mutable_sizes());
  request.set_exact(question.exact);
  if (question.exact) request.set_constraint("exact");
  request.set_device_class(question.device_class);
  TW_ASSIGN(v1::ResolveModuleResponse answer,
            client.Call(client.modules(), &v1::ModuleService::Stub::ResolveModule, request));
  if (answer.match() == v1::ResolveModuleResponse::NONE) {
    return support::NotFound("module.not_found", answer.explanation());  // an older server
  }
  TW_TRY(CheckAnswer(request.parent(), answer.version(), ref.number));
  return answer;
}

int ModulesList(const ServerPlace& server, const std::string& module, OutputFormat format) {
  const auto list = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    TW_ASSIGN(ModuleRef ref, ParseModule(module.empty() ? "-" : module));
    Table table({{"module"},
                 {"version", true},
                 {"aliases"},
                 {"signed by"},
                 {"target"},
                 {"sizes"},
                 {"time", true},
                 {"gain", true},
                 {"size", true},
                 {"created (UTC)"}});
    nlohmann::json rows = nlohmann::json::array();
    v1::ListModuleVersionsRequest request;
    request.set_parent(ref.module);
    do {
      TW_ASSIGN(
          v1::ListModuleVersionsResponse page,
          client.Call(client.modules(), &v1::ModuleService::Stub::ListModuleVersions, request));
      for (const v1::ModuleVersion& v : page.versions()) {
        rows.push_back(VersionJson(v));
        const std::string path = v.name().substr(0, v.name().find("/versions/"));
        const double speedup = v.performance().speedup_vs_baseline();
        table.AddRow(
            {LastPart(path), StrCat(v.number()), AliasesText(v), SignersText(v), TargetText(v),
             SizesText(v),
             ValueText(v.performance().median_us() * 1e3, support::UnitOfClass(v.device_class())),
             speedup > 0 ? support::FormatFixed(speedup, 2) + "x" : "-",
             v.state() == v1::ModuleVersion::PRUNED ? "pruned"
             : v.files().empty()                    ? "-"
                                 : BytesText(static_cast<double>(v.files(0).digest().size_bytes())),
             TimestampText(v.create_time())});
      }
      request.mutable_page()->set_page_token(page.next_page_token());
    } while (!request.page().page_token().empty());
    if (format == OutputFormat::kJson) {
      PrintJson(rows);
    } else {
      PrintOut(table.Render());
    }
    return absl::OkStatus();
  };
  return Finish("modules list", "cannot list modules", list());
}

int ModulesGet(const ServerPlace& server, const std::string& name, OutputFormat format) {
  const auto get = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    TW_ASSIGN(const v1::ModuleVersion found, FindModule(client, name));
    v1::GetModuleVersionRequest request;  // with where it came from
    request.set_name(found.name());
    TW_ASSIGN(const v1::ModuleVersion version,
              client.Call(client.modules(), &v1::ModuleService::Stub::GetModuleVersion, request));
    TW_ASSIGN(const std::optional<module::Manifest> manifest, ManifestOf(client, version));
    if (format == OutputFormat::kJson) {
      nlohmann::json json = VersionJson(version);
      if (manifest) AddEnds(*manifest, &json);
      PrintJson(json);
      return absl::OkStatus();
    }
    std::string text =
        StrCat("module    ", version.name(), "\ntarget    ", TargetText(version), "\nmade for  ",
               SizesText(version), "\nfrom job  ", version.source_job(), "\ntime      ",
               ValueText(version.performance().median_us() * 1e3,
                         support::UnitOfClass(version.device_class())),
               " (sum of kernels), gain ",
               support::FormatFixed(version.performance().speedup_vs_baseline(), 2), "x",
               "\nasked by  ", version.created_by(), "\ncompiled  by ", version.toolchain(), ", ",
               TimestampText(version.create_time()), "\nmodel     sha256 ",
               DigestHex(version.model()), "\ndevices   ", version.performance().devices(),
               " of class ", version.device_class().empty() ? "-" : version.device_class(),
               "\naliases   ", AliasesText(version), "\nsigned by ", SignersText(version));
    if (manifest) text += EndsLines(*manifest);
    for (const v1::ModuleSignature& one : version.revoked_signatures()) {
      text += StrCat("\nrevoked   key ", one.key_id(), ", by ", one.revoked_by(), ": ",
                     support::Quote(one.revoke_reason(), 200));
    }
    if (version.state() == v1::ModuleVersion::PRUNED)
      text += "\nstate     pruned: its bytes are gone";
    for (const v1::ModuleFile& file : version.files()) {
      text += StrCat("\nfile      ", file.path(), "  ", file.digest().size_bytes(),
                     " bytes  sha256 ", DigestHex(file.digest()));
    }
    PrintOut(text);
    if (!version.records().empty()) PrintOut("\n" + RecordsTable(version));
    return absl::OkStatus();
  };
  return Finish("modules get", "cannot show module " + name, get());
}

int ModulesResolve(const ServerPlace& server, const ModuleQuestion& question, OutputFormat format) {
  const auto resolve = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    TW_ASSIGN(const v1::ResolveModuleResponse answer, ResolveModule(client, question));
    const std::string match =
        support::ToLower(v1::ResolveModuleResponse::Match_Name(answer.match()));
    if (format == OutputFormat::kJson) {
      nlohmann::json out = VersionJson(answer.version());
      out["match"] = match;
      out["explanation"] = answer.explanation();
      PrintJson(out);
    } else {
      PrintOut(StrCat(answer.version().name(), "\nmatch     ", match, ": ", answer.explanation()));
    }
    return absl::OkStatus();
  };
  return Finish("modules resolve", "no module answers", resolve());
}

int ModulesAlias(const ServerPlace& server, const std::string& name, const std::string& alias,
                 bool remove) {
  const auto set = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    TW_ASSIGN(const ModuleRef ref, ParseModule(name));
    v1::SetModuleAliasRequest request;
    request.set_parent(ref.module);
    request.set_alias(alias);
    if (!remove) {
      TW_ASSIGN(const v1::ModuleVersion version, FindModule(client, name));
      request.set_version(version.name());
    }
    TW_ASSIGN(const v1::ModuleAlias done,
              client.Call(client.modules(), &v1::ModuleService::Stub::SetModuleAlias, request));
    PrintOut(remove ? StrCat("removed ", LastPart(ref.module), "@", alias)
                    : StrCat(LastPart(ref.module), "@", alias, " is ", done.version()));
    return absl::OkStatus();
  };
  return Finish("modules alias", StrCat("cannot ", remove ? "remove" : "set", " alias ", alias),
                set());
}

int ModulesPrune(const ServerPlace& server, const ModulePruning& pruning, OutputFormat format) {
  const auto prune = [&]() -> absl::Status {
    if (pruning.keep <= 0 && pruning.max_bytes <= 0) {
      return support::InvalidArgument("cli.usage.prune", "expected --keep or --max-bytes");
    }
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    v1::PruneModulesRequest request;
    if (!pruning.module.empty()) {
      TW_ASSIGN(const ModuleRef ref, ParseModule(pruning.module));
      request.set_parent(ref.module);
    }
    request.set_keep_versions(pruning.keep);
    request.set_max_bytes(pruning.max_bytes);
    request.set_dry_run(pruning.dry_run);
    TW_ASSIGN(const v1::PruneModulesResponse done,
              client.Call(client.modules(), &v1::ModuleService::Stub::PruneModules, request));
    if (format == OutputFormat::kJson) {
      nlohmann::json names = nlohmann::json::array();
      for (const v1::ModuleVersion& version : done.pruned()) names.push_back(version.name());
      PrintJson({{"pruned", names},
                 {"dry_run", pruning.dry_run},
                 {"freed_bytes", done.freed_bytes()},
                 {"kept_bytes", done.kept_bytes()},
                 {"within_limits", done.within_limits()}});
      return absl::OkStatus();
    }
    for (const v1::ModuleVersion& version : done.pruned()) {
      PrintOut(StrCat(pruning.dry_run ? "would prune " : "pruned ", version.name()));
    }
    PrintOut(StrCat(done.pruned_size(), " versions, ",
                    BytesText(static_cast<double>(done.freed_bytes())), " freed; ",
                    BytesText(static_cast<double>(done.kept_bytes())), " kept",
                    done.within_limits() ? ""
                                         : ": more than the limit, but each is aliased or the "
                                           "newest of its module"));
    return absl::OkStatus();
  };
  return Finish("modules prune", "cannot prune modules", prune());
}

}  // namespace tilewright::cli
