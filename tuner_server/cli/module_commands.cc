#include "tuner_server/cli/module_commands.h"

#include <nlohmann/json.hpp>

#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/model_compiler.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

std::string TargetText(const v1::ModuleVersion& version) {
  const auto it = version.target().find("target");
  return it == version.target().end() ? "-" : it->second.s();
}

std::string DigestHex(const v1::Digest& digest) { return support::HexEncode(digest.hash()); }

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
          {"files", files},
          {"etag", version.etag()},
          {"source_job", version.source_job()},
          {"model_sha256", DigestHex(version.model())},
          {"median_us", version.performance().median_us()},
          {"speedup", version.performance().speedup_vs_baseline()},
          {"create_time", TimestampText(version.create_time())}};
}

// "projects/default/modules/m" and the version's number (0 = newest).
struct ModuleRef {
  std::string module;
  int64_t number = 0;
};
absl::StatusOr<ModuleRef> ParseModule(std::string text) {
  constexpr std::string_view kPrefix = "projects/default/modules/";
  if (text.starts_with(kPrefix)) text = text.substr(kPrefix.size());
  const std::vector<std::string> parts = support::Split(text, '/');
  const bool with_version = parts.size() == 2 || (parts.size() == 3 && parts[1] == "versions");
  const auto number = with_version ? support::ParseInt64(parts.back()) : std::optional<int64_t>(0);
  if (parts[0].empty() || parts.size() > 3 || (parts.size() > 1 && !with_version) || !number) {
    return support::InvalidArgument(
        "cli.usage.module", "expected MODULE or MODULE/NUMBER, found " + support::Quote(text));
  }
  return ModuleRef{std::string(kPrefix) + parts[0], *number};
}

}  // namespace

absl::StatusOr<v1::ModuleVersion> FindModule(ServerClient& client, const std::string& name) {
  TW_ASSIGN(ModuleRef ref, ParseModule(name));
  if (ref.number > 0) {
    v1::GetModuleVersionRequest request;
    request.set_name(StrCat(ref.module, "/versions/", ref.number));
    return client.Call(client.modules(), &v1::ModuleService::Stub::GetModuleVersion, request);
  }
  v1::ListModuleVersionsRequest request;
  request.set_parent(ref.module);
  request.mutable_page()->set_page_size(1);
  TW_ASSIGN(v1::ListModuleVersionsResponse page,
            client.Call(client.modules(), &v1::ModuleService::Stub::ListModuleVersions, request));
  if (page.versions().empty()) {
    return support::NotFound("module.not_found", "the server has no version of " + ref.module);
  }
  return page.versions(0);
}

absl::Status FetchModule(ServerClient& client, const v1::ModuleVersion& version,
                         const std::string& output) {
  if (version.files().empty()) {
    return support::DataLoss("module.files.missing", version.name() + " names no file");
  }
  return client.Download(version.files(0).digest(), output);
}

int ModulesList(const ServerPlace& server, const std::string& module, OutputFormat format) {
  const auto list = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    TW_ASSIGN(ModuleRef ref, ParseModule(module.empty() ? "-" : module));
    Table table({{"module"},
                 {"version", true},
                 {"target"},
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
        table.AddRow({LastPart(path), StrCat(v.number()), TargetText(v),
                      TimeText(v.performance().median_us() * 1e3),
                      speedup > 0 ? support::FormatFixed(speedup, 2) + "x" : "-",
                      v.files().empty()
                          ? "-"
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
    TW_ASSIGN(v1::ModuleVersion version, FindModule(client, name));
    if (format == OutputFormat::kJson) {
      PrintJson(VersionJson(version));
      return absl::OkStatus();
    }
    std::string text =
        StrCat("module    ", version.name(), "\ntarget    ", TargetText(version), "\nfrom job  ",
               version.source_job(), "\ntime      ",
               TimeText(version.performance().median_us() * 1e3), " (sum of kernels), gain ",
               support::FormatFixed(version.performance().speedup_vs_baseline(), 2), "x");
    for (const v1::ModuleFile& file : version.files()) {
      text += StrCat("\nfile      ", file.path(), "  ", file.digest().size_bytes(),
                     " bytes  sha256 ", DigestHex(file.digest()));
    }
    PrintOut(text);
    return absl::OkStatus();
  };
  return Finish("modules get", "cannot show module " + name, get());
}

int ModulesFetch(const ServerPlace& server, const std::string& name, const std::string& output,
                 bool if_newer) {
  const auto fetch = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    TW_ASSIGN(v1::ModuleVersion version, FindModule(client, name));
    const std::string path = output.empty() ? "model.tw" : output;
    if (if_newer && support::FileExists(path) && !version.files().empty()) {
      TW_ASSIGN(std::string have, support::ReadFile(path, kMaxModuleBytes));
      if (support::Sha256Hex(have) == DigestHex(version.files(0).digest())) {
        PrintOut(StrCat(path, " is ", version.name(), " already"));
        return absl::OkStatus();
      }
    }
    TW_TRY(FetchModule(client, version, path));
    PrintOut(StrCat("wrote ", path, "  ", version.name(), "  sha256 ",
                    DigestHex(version.files(0).digest())));
    return absl::OkStatus();
  };
  return Finish("modules fetch", "cannot fetch module " + name, fetch());
}

}  // namespace tilewright::cli
