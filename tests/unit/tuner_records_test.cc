// What a tuner keeps: its log, and the modules that it publishes, over gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "deploy/security/module_signature.h"
#include "tests/unit/tuner_service_fixture.h"

namespace tilewright::service {
namespace {

using support::Slug;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(TunerServiceTest, TheLogComesOutAsLines) {
  const std::string name = Value(Create(Request(20))).name();
  WaitForEnd(name);
  v1::ExportLogRequest request;
  request.set_name(name);
  request.set_features(true);
  int64_t with_features = 0, finals = 0;
  const std::string records = Export(request);
  for (const std::string& line : support::Split(records, '\n')) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (!record.is_object()) continue;
    if (record["features"].size() == 1) ++with_features;
    if (record["generated_by"] == "final") ++finals;
  }
  EXPECT_EQ(std::count(records.begin(), records.end(), '\n'), 20 + finals);
  EXPECT_EQ(with_features, 18) << "all but the two default schedules and what was measured again";
  request.set_drafts(true);
  const std::string drafts = Export(request);
  EXPECT_EQ(std::count(drafts.begin(), drafts.end(), '\n') % 20, 0) << "20 drafts a batch";
  EXPECT_GT(drafts.size(), 0U);
  EXPECT_EQ(Export(v1::ExportLogRequest()).size(), Export([&name] {
                                                     v1::ExportLogRequest one;
                                                     one.set_name(name);
                                                     return one;
                                                   }())
                                                       .size());
}

TEST_F(TunerServiceTest, ALogIsTakenOverWhileJobsRun) {
  const std::string source = Value(Create(Request(12))).name();
  EXPECT_EQ(WaitForEnd(source).state(), v1::Job::SUCCEEDED);
  const std::string id = source.substr(source.rfind('/') + 1);
  v1::ExportLogRequest all;
  all.set_name(source);
  const std::string lines = Export(all);
  const int64_t records = std::count(lines.begin(), lines.end(), '\n');
  // The same measurements as another server would tell of them: other names.
  std::string foreign = lines;
  for (size_t at = 0; (at = foreign.find(id, at)) != std::string::npos; at += id.size()) {
    foreign.replace(at, 3, "far");
  }
  const auto import = [this](const std::string& text,
                             const std::string& prefix) -> absl::StatusOr<v1::ImportLogResponse> {
    v1::ImportLogRequest request;
    TW_ASSIGN(*request.mutable_lines(), Upload(text));
    request.set_job_prefix(prefix);
    return Call(jobs_.get(), &v1::JobService::Stub::ImportLog, request);
  };
  EXPECT_EQ(Value(import(lines, "")).known(), records);
  v1::ImportLogResponse report = Value(import(foreign, ""));
  EXPECT_EQ(report.new_records(), records);
  report = Value(import(foreign, ""));
  EXPECT_EQ(report.new_records(), 0);
  EXPECT_EQ(report.known(), records) << "twice is harmless";
  // Imported measurements count like own ones.
  v1::CreateJobRequest again = Request(12);
  again.mutable_job()->set_recall(true);
  EXPECT_EQ(WaitForEnd(Value(Create(again)).name()).progress().measured(), 0);

  // A job that is at work here numbers its trials itself.
  fleet_->measuring = false;
  v1::CreateJobRequest open = Request(12);
  open.set_job_id("open");
  const std::string running = Value(Create(open)).name();
  WatchUntilProposed(running);
  std::string clash = lines;
  for (size_t at = 0; (at = clash.find(id, at)) != std::string::npos; at += 4) {
    clash.replace(at, id.size(), "open");
  }
  report = Value(import(clash, ""));
  EXPECT_EQ(report.new_records(), 0);
  EXPECT_EQ(report.conflicts(), records);
  EXPECT_THAT(report.examples(0), HasSubstr("not over"));
  EXPECT_EQ(Value(import(clash, "far-")).new_records(), records);
  fleet_->measuring = true;
  EXPECT_EQ(WaitForEnd(running).progress().measured(), 12);

  EXPECT_EQ(Slug(import("nonsense", "").status()), "log.import.bad_line");
  EXPECT_EQ(Slug(import(lines, "a/b").status()), "job.id.bad");
  v1::ImportLogRequest unknown;
  *unknown.mutable_lines() = daemon::MakeDigest(support::Sha256Hex("never sent"), 10);
  EXPECT_EQ(Slug(Call(jobs_.get(), &v1::JobService::Stub::ImportLog, unknown).status()),
            "log.import.missing");
}

TEST_F(TunerServiceTest, ModulesAreResolvedAndListed) {
  for (int i = 0; i < 2; ++i) {
    v1::CreateJobRequest request = Request(4 + i);
    EXPECT_EQ(WaitForEnd(Value(Create(request)).name()).state(), v1::Job::SUCCEEDED);
  }
  v1::ResolveModuleRequest resolve;
  resolve.set_parent("projects/default/modules/fake-net");
  resolve.set_target("cpu,threads=2,cpu=x86-64,arch=x86_64");
  auto got = Value(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve));
  EXPECT_EQ(got.match(), v1::ResolveModuleResponse::EXACT);
  EXPECT_EQ(got.version().number(), 2);
  resolve.set_known_etag(got.version().etag());
  got = Value(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve));
  EXPECT_EQ(got.match(), v1::ResolveModuleResponse::NOT_MODIFIED);
  resolve.clear_known_etag();
  resolve.set_constraint("1");
  got = Value(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve));
  EXPECT_EQ(got.version().number(), 1);
  resolve.set_constraint("exact");
  resolve.set_target("cpu,arch=x86_64,cpu=x86-64,threads=1");
  const absl::Status none =
      Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve).status();
  EXPECT_TRUE(absl::IsNotFound(none)) << none;
  EXPECT_EQ(Slug(none), "module.not_found");
  resolve.clear_constraint();
  resolve.set_exact(true);
  EXPECT_EQ(Slug(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve).status()),
            "module.not_found");
  resolve.clear_exact();
  resolve.clear_target();
  resolve.set_number(1);
  got = Value(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve));
  EXPECT_EQ(got.version().number(), 1);
  resolve.set_number(-1);
  EXPECT_EQ(Slug(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve).status()),
            "module.resolve.constraint");
  resolve.clear_number();
  resolve.set_preferred_target("cpu,arch=aarch64,cpu=cortex-a76,threads=4");
  got = Value(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve));
  EXPECT_EQ(got.match(), v1::ResolveModuleResponse::FALLBACK);
  resolve.set_max_latency_us(1e-3);
  EXPECT_EQ(Slug(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve).status()),
            "module.not_found.too_slow");
  resolve.set_max_latency_us(-1);
  EXPECT_EQ(Slug(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve).status()),
            "module.resolve.max_latency");
  v1::ListModuleVersionsRequest list;
  list.set_parent("projects/default/modules/-");
  list.mutable_page()->set_page_size(1);
  std::vector<std::string> names;
  do {
    const auto page =
        Value(Call(modules_.get(), &v1::ModuleService::Stub::ListModuleVersions, list));
    for (const auto& version : page.versions()) names.push_back(version.name());
    list.mutable_page()->set_page_token(page.next_page_token());
  } while (!list.page().page_token().empty());
  EXPECT_THAT(names, ElementsAre("projects/default/modules/fake-net/versions/2",
                                 "projects/default/modules/fake-net/versions/1"));
}

TEST_F(TunerServiceTest, ReleasesAreCheckedAndCanBeTakenBack) {
  ASSERT_EQ(WaitForEnd(Value(Create(Request(4))).name()).state(), v1::Job::SUCCEEDED);
  v1::ResolveModuleRequest resolve;
  resolve.set_parent("projects/default/modules/fake-net");
  const v1::ModuleVersion version =
      Value(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve)).version();
  const support::TempDir dir = Value(support::TempDir::Create("release"));
  Value(security::CreateSigningKey(dir.File("key")));
  const auto signer = Value(security::ModuleSigner::Load(dir.File("key")));
  v1::AddReleaseKeyRequest add;
  add.set_public_key(Value(signer->public_key()));
  add.set_display_name("bad \x1b[31m name");
  const auto register_key = [&] {
    return Call(modules_.get(), &v1::ModuleService::Stub::AddReleaseKey, add);
  };
  EXPECT_EQ(Slug(register_key().status()), "module.key.name");
  add.set_display_name("the team");
  EXPECT_EQ(Value(register_key()).key_id(), signer->key_id());
  const std::string sha256 = support::HexEncode(version.files(0).digest().hash());
  v1::AddModuleSignatureRequest sign;
  sign.set_name(version.name());
  sign.mutable_signature()->set_key_id(signer->key_id());
  sign.mutable_signature()->set_signature(std::string(64, '\0'));
  const auto release = [&] {
    return Call(modules_.get(), &v1::ModuleService::Stub::AddModuleSignature, sign);
  };
  EXPECT_EQ(Slug(release().status()), "signing.signature.wrong") << "64 bytes of nothing";
  sign.mutable_signature()->set_signature(Value(signer->Sign({sha256})).signature);
  EXPECT_EQ(Value(release()).signatures(0).format(), 1) << "what older clients send";

  v1::RevokeModuleSignatureRequest revoke;
  revoke.set_name(version.name());
  revoke.set_key_id(signer->key_id());
  const auto take_back = [&] {
    return Call(modules_.get(), &v1::ModuleService::Stub::RevokeModuleSignature, revoke);
  };
  EXPECT_EQ(Slug(take_back().status()), "module.revoke.reason");
  revoke.set_reason("wrong on batch 8");
  const v1::ModuleVersion revoked = Value(take_back());
  EXPECT_EQ(revoked.signatures_size(), 0) << "older clients see no release";
  EXPECT_EQ(revoked.revoked_signatures(0).revoke_reason(), "wrong on batch 8");
  EXPECT_EQ(Slug(release().status()), "module.signature.revoked");

  v1::RevokeReleaseKeyRequest revoke_key;
  revoke_key.set_key_id(signer->key_id());
  revoke_key.set_reason("stolen");
  const auto key = Call(modules_.get(), &v1::ModuleService::Stub::RevokeReleaseKey, revoke_key);
  EXPECT_EQ(Value(key).revoke_reason(), "stolen");
  EXPECT_EQ(Slug(register_key().status()), "log.release_key.revoked");
  const auto keys =
      Call(modules_.get(), &v1::ModuleService::Stub::ListReleaseKeys, v1::ListReleaseKeysRequest());
  EXPECT_EQ(Value(keys).keys_size(), 1);
}

TEST_F(TunerServiceTest, AliasesSignaturesProvenanceAndPruning) {
  for (int i = 0; i < 3; ++i) {
    v1::CreateJobRequest request = Request(4 + i);
    EXPECT_EQ(WaitForEnd(Value(Create(request)).name()).state(), v1::Job::SUCCEEDED);
  }
  const std::string parent = "projects/default/modules/fake-net";
  v1::SetModuleAliasRequest alias;
  alias.set_parent(parent);
  alias.set_alias("stable");
  alias.set_version(parent + "/versions/1");
  const auto set = Value(Call(modules_.get(), &v1::ModuleService::Stub::SetModuleAlias, alias));
  EXPECT_NE(set.updated_by(), "");
  v1::ResolveModuleRequest resolve;
  resolve.set_parent(parent);
  resolve.set_alias("stable");
  const auto got = Value(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve));
  EXPECT_EQ(got.version().number(), 1);
  EXPECT_THAT(got.version().aliases(), ElementsAre("stable"));

  v1::AddModuleSignatureRequest sign;
  sign.set_name(parent + "/versions/1");
  sign.mutable_signature()->set_key_id("0011223344556677");
  sign.mutable_signature()->set_signature("short");
  const auto add = [this, &sign] {
    return Call(modules_.get(), &v1::ModuleService::Stub::AddModuleSignature, sign);
  };
  EXPECT_EQ(Slug(add().status()), "module.signature.bad");
  sign.mutable_signature()->set_signature(std::string(64, 's'));
  sign.mutable_signature()->set_format(3);
  EXPECT_EQ(Slug(add().status()), "module.signature.bad");
  sign.mutable_signature()->clear_format();  // as older clients send it
  EXPECT_EQ(Slug(add().status()), "module.key.unregistered");
  v1::ReleaseModuleRequest release;
  release.set_name(parent + "/versions/1");
  EXPECT_EQ(Slug(Call(modules_.get(), &v1::ModuleService::Stub::ReleaseModule, release).status()),
            "module.release.no_key");

  v1::GetModuleVersionRequest get;
  get.set_name(parent + "/versions/1");
  const auto shown = Value(Call(modules_.get(), &v1::ModuleService::Stub::GetModuleVersion, get));
  EXPECT_NE(shown.created_by(), "");
  EXPECT_NE(shown.toolchain(), "");
  EXPECT_EQ(shown.device_class(), "cpu-sim");

  v1::PruneModulesRequest prune;
  EXPECT_EQ(Slug(Call(modules_.get(), &v1::ModuleService::Stub::PruneModules, prune).status()),
            "module.prune.limits");
  prune.set_keep_versions(1);
  prune.set_dry_run(true);
  auto pruned = Value(Call(modules_.get(), &v1::ModuleService::Stub::PruneModules, prune));
  ASSERT_EQ(pruned.pruned_size(), 1);
  EXPECT_EQ(pruned.pruned(0).name(), parent + "/versions/2");
  prune.set_dry_run(false);
  pruned = Value(Call(modules_.get(), &v1::ModuleService::Stub::PruneModules, prune));
  EXPECT_EQ(pruned.pruned_size(), 1);
  get.set_name(parent + "/versions/2");
  EXPECT_EQ(Value(Call(modules_.get(), &v1::ModuleService::Stub::GetModuleVersion, get)).state(),
            v1::ModuleVersion::PRUNED);
}

}  // namespace
}  // namespace tilewright::service
