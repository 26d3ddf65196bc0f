// Flags, help and examples of the commands around modules.
#include <memory>

#include "tuner_server/cli/command_flags.h"
#include "tuner_server/cli/module_fetch.h"
#include "tuner_server/cli/module_keys.h"
#include "tuner_server/cli/module_release.h"
#include "tuner_server/cli/module_signing.h"

namespace tilewright::cli {
namespace {

constexpr char kNameHelp[] = "NAME (the best version, see 'resolve'), NAME/NUMBER or NAME@ALIAS";
constexpr char kOneVersionHelp[] = "one version: NAME/NUMBER or NAME@ALIAS";

void AddQuestion(CLI::App* command, ModuleQuestion* question) {
  command->add_option("MODULE", question->module, kNameHelp);
  command->add_option("--model", question->model,
                      "made from this ONNX file, or the file with this SHA-256");
  command->add_option("--target", question->target,
                      "for this target, see 'tilewright targets'; without it, versions for this "
                      "machine are preferred");
  command
      ->add_option(
          "--shape", question->sizes.shapes,
          "only versions that take this size: NAME=8 or NAME=1x3x224x224 as at the tuning, "
          "or\na size within a range of it; NAME=1..64: a range within it; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--specialise", question->sizes.specialise,
                   "only versions with functions for these sizes: NAME=1,8,32; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--state", question->sizes.states,
                   "only versions that keep this state: PAST=PRESENT, or known; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--device-class", question->device_class, "tuned on this class of devices");
  command->add_flag("--exact", question->exact, "no module for another number of threads");
  command->add_option("--max-latency", question->max_latency,
                      "only versions with a measured time of at most this, as 100us, 1.5ms or 2s");
  command->add_option("--not-slower-than", question->not_slower_than,
                      "only versions that are not slower than this one: NUMBER or NAME/NUMBER");
}

// Runs the action when there is something to look for.
void OnQuestion(CLI::App* command, const ModuleQuestion* question, Action* action, Action run) {
  command->callback([=] {
    if (question->module.empty() && question->model.empty()) {
      throw CLI::RequiredError("MODULE or --model");
    }
    *action = run;
  });
}

void AddLooking(CLI::App* group, Action* action) {
  struct Options {
    ServerPlace server;
    std::string name;
    OutputFormat format = OutputFormat::kTable;
  };
  auto o = std::make_shared<Options>();
  CLI::App* list = AddCommand(group, "list", "versions, newest first",
                              "  tilewright modules list dqn -o json\n");
  list->add_option("MODULE", o->name, "name (default: all)");
  AddServer(list, &o->server);
  AddFormat(list, kOutputFlag, &o->format);
  list->callback([=] { *action = [o] { return ModulesList(o->server, o->name, o->format); }; });
  for (const char* word : {"show", "get"}) {
    CLI::App* get = AddCommand(
        group, word,
        "one version: files, digests, signatures, who asked for it, what it was measured on",
        std::string("  tilewright modules ") + word + " dqn/3\n  tilewright modules " + word +
            " dqn@stable -o json\n");
    get->add_option("MODULE", o->name, kNameHelp)->required();
    AddServer(get, &o->server);
    AddFormat(get, kOutputFlag, &o->format);
    get->callback([=] { *action = [o] { return ModulesGet(o->server, o->name, o->format); }; });
  }
  auto question = std::make_shared<ModuleQuestion>();
  CLI::App* resolve =
      AddCommand(group, "resolve", "the version that answers best, and why",
                 "  tilewright modules resolve --model dqn.onnx --target native\n"
                 "  tilewright modules resolve dqn@stable -o json\n"
                 "  tilewright modules resolve dqn --max-latency 100us\n"
                 "  tilewright modules resolve dqn --shape batch=8\n"
                 "\nA number or an alias names one version. Otherwise: versions for the target\n"
                 "first, then those for fewer threads, then those for more; of these, those with\n"
                 "kernels tuned for the sizes of --shape; of these, versions of the newest one's\n"
                 "model, sizes and device class; of these, the one with the shortest measured\n"
                 "time. Of versions with equal times (3 % apart, or what their intervals\n"
                 "say, up to 10 %) the newest.\n");
  AddQuestion(resolve, question.get());
  AddServer(resolve, &o->server);
  AddFormat(resolve, kOutputFlag, &o->format);
  OnQuestion(resolve, question.get(), action,
             [o, question] { return ModulesResolve(o->server, *question, o->format); });
}

void AddFetch(CLI::App* group, Action* action) {
  auto server = std::make_shared<ServerPlace>();
  auto o = std::make_shared<ModuleFetch>();
  CLI::App* fetch = AddCommand(
      group, "fetch", "fetch a module; its digest (and release) is checked",
      "  tilewright modules fetch dqn@stable -o dqn.tw --if-newer\n"
      "  tilewright modules fetch --model dqn.onnx --target native -o dqn.tw --key "
      "release.key.pub\n"
      "  tilewright modules fetch dqn -o dqn.tw --if-newer --exit-code || test $? -eq 6\n"
      "  tilewright modules fetch dqn --not-slower-than 3 --max-latency 1.5ms\n"
      "\nWhich version NAME means: 'tilewright modules resolve --help'. A fetch that was cut off\n"
      "continues where it ended (OUTPUT.*.part). With --key, a module that was not released by\n"
      "that key, or under another name, number or target, is refused (exit code 5) before any of\n"
      "it is moved. So is one with other bytes than --digest.\n");
  AddQuestion(fetch, &o->question);
  AddServer(fetch, server.get());
  fetch->add_option("-o,--output", o->output, "file to write")->capture_default_str();
  fetch->add_option("--key", o->key,
                    "public key that must have released it (default: environment "
                    "TILEWRIGHT_MODULE_KEY)");
  fetch->add_option("--digest", o->digest,
                    "the version must have these bytes: sha256:HEX, as 'modules show' prints it");
  fetch->add_flag("--bytes-only", o->bytes_only,
                  "with --key, accept a signature of format 1: it covers the bytes, but not name, "
                  "version and target");
  CLI::Option* if_newer =
      fetch->add_flag("--if-newer", o->if_newer, "move nothing when the file is that version");
  fetch->add_flag("--exit-code", o->exit_code, "with --if-newer: exit code 6 when nothing was new")
      ->needs(if_newer);
  AddFormat(fetch, kFormatFlag, &o->format);
  OnQuestion(fetch, &o->question, action, [server, o] { return ModulesFetch(*server, *o); });
}

void AddAliases(CLI::App* group, Action* action) {
  struct Options {
    ServerPlace server;
    std::string name, alias;
  };
  auto o = std::make_shared<Options>();
  CLI::App* aliases = AddGroup(group, "alias", "names that move from version to version",
                               "  tilewright modules alias set dqn/3 stable\n"
                               "  tilewright modules alias remove dqn stable\n");
  CLI::App* set = AddCommand(aliases, "set", "point an alias at a version; it is never pruned then",
                             "  tilewright modules alias set dqn/3 stable\n"
                             "  tilewright modules alias set dqn@candidate stable\n");
  CLI::App* remove = AddCommand(aliases, "remove", "forget an alias",
                                "  tilewright modules alias remove dqn stable\n");
  set->add_option("MODULE", o->name, kNameHelp)->required();
  remove->add_option("MODULE", o->name, "NAME")->required();
  for (CLI::App* command : {set, remove}) {
    command->add_option("ALIAS", o->alias, "lower-case letters, digits and .-_")->required();
    AddServer(command, &o->server);
  }
  set->callback(
      [=] { *action = [o] { return ModulesAlias(o->server, o->name, o->alias, false); }; });
  remove->callback(
      [=] { *action = [o] { return ModulesAlias(o->server, o->name, o->alias, true); }; });
}

void AddPrune(CLI::App* group, Action* action) {
  struct Options {
    ServerPlace server;
    ModulePruning pruning;
    OutputFormat format = OutputFormat::kTable;
  };
  auto o = std::make_shared<Options>();
  CLI::App* prune = AddCommand(
      group, "prune", "give up the bytes of old versions",
      "  tilewright modules prune --keep 5 --dry-run\n"
      "  tilewright modules prune dqn --max-bytes 2000000000\n"
      "\nNever the newest of a module, never one that an alias names. Needs an admin's token on a\n"
      "fleet with TLS. tilewright-tuner does the same after each job with --keep-module-versions\n"
      "and --max-module-bytes.\n");
  prune->add_option("MODULE", o->pruning.module, "name (default: all)");
  prune->add_option("--keep", o->pruning.keep, "newest versions of each module to keep")
      ->check(CLI::Range(1, 1'000'000));
  prune->add_option("--max-bytes", o->pruning.max_bytes, "then the oldest go until the rest fits")
      ->check(CLI::PositiveNumber);
  prune->add_flag("--dry-run", o->pruning.dry_run, "only say what would go");
  AddServer(prune, &o->server);
  AddFormat(prune, kOutputFlag, &o->format);
  prune->callback(
      [=] { *action = [o] { return ModulesPrune(o->server, o->pruning, o->format); }; });
}

void AddSigning(CLI::App* group, Action* action) {
  auto o = std::make_shared<ModuleSigning>();
  CLI::App* keygen = AddCommand(group, "keygen", "make a key that signs modules",
                                "  tilewright modules keygen release.key\n"
                                "\nWrites FILE (keep it secret) and FILE.pub (give it to those "
                                "who fetch).\n");
  keygen->add_option("FILE", o->path, "private key to write")->required();
  AddFormat(keygen, kOutputFlag, &o->format);
  keygen->callback([=] { *action = [o] { return ModulesKeygen(o->path, o->format); }; });

  CLI::App* sign = AddCommand(
      group, "sign", "sign the bytes of a module file that no server has",
      "  tilewright modules sign dqn.tw --key release.key\n"
      "  tilewright modules sign dqn.tw --key release.key --attach-to dqn/3 --server tuner:7000\n"
      "\nThe signature covers the bytes alone. With --attach-to it is a release, as of\n"
      "'tilewright modules release dqn/3 --key release.key --file dqn.tw'.\n");
  CLI::App* verify = AddCommand(
      group, "verify", "who signed a module file, and as what; needs no server",
      "  tilewright modules verify dqn.tw --key release.key.pub\n"
      "  tilewright modules verify dqn.tw --key release.key.pub --module dqn/3 --target native\n");
  for (CLI::App* command : {sign, verify}) {
    command->add_option("FILE", o->path, "module (.tw)")->required();
    command->add_option("--signature", o->signature, "detached signature (default: FILE.sig)");
  }
  sign->add_option("--key", o->key, "private key")->required();
  sign->add_option("--attach-to", o->attach_to, "published version with the same bytes");
  AddServer(sign, &o->server);
  verify->add_option("--key", o->key, "public key (default: environment TILEWRIGHT_MODULE_KEY)");
  verify->add_option("--module", o->module, "it must be released as NAME or NAME/NUMBER");
  verify->add_option("--target", o->target, "it must be released for this target");
  AddFormat(verify, kOutputFlag, &o->format);
  sign->callback([=] { *action = [o] { return ModulesSign(*o); }; });
  verify->callback([=] { *action = [o] { return ModulesVerify(*o); }; });
}

void AddRelease(CLI::App* group, Action* action) {
  auto o = std::make_shared<ModuleRelease>();
  CLI::App* release = AddCommand(
      group, "release", "say by a signature that a published version may be used",
      "  tilewright modules release dqn/3 --key release.key --file dqn.tw\n"
      "  tilewright modules release dqn/3 --key release.key --digest sha256:5f0c...\n"
      "  tilewright modules release dqn/3        # with the server's key (--module-key)\n"
      "\nThe signature covers name, number, target and bytes. Give the file or the digest that "
      "was\n"
      "tested: otherwise the version is released as the server has it. Needs the role engineer or\n"
      "admin on a fleet with TLS, and a key that an administrator has registered ('tilewright\n"
      "modules keys add'). Publishing (tuning) a module never releases it.\n");
  release->add_option("MODULE", o->name, kOneVersionHelp)->required();
  release->add_option("--key", o->key, "private key; without it the server signs with its own");
  release->add_option("--file", o->file, "the tested module: the version must have its bytes");
  release->add_option("--digest", o->digest, "the tested digest: sha256:HEX");
  release->add_option("--signature", o->signature, "also write the detached signature here");
  AddServer(release, &o->server);
  AddFormat(release, kOutputFlag, &o->format);
  release->callback([=] { *action = [o] { return ModulesRelease(*o); }; });
}

void AddReleaseKeys(CLI::App* group, Action* action) {
  auto o = std::make_shared<ReleaseKeyAdding>();
  auto revoking = std::make_shared<ReleaseRevoking>();
  CLI::App* keys =
      AddGroup(group, "keys", "keys whose owners may release modules",
               "  tilewright modules keys add release.key.pub --name 'release team'\n"
               "  tilewright modules keys list\n"
               "  tilewright modules keys revoke 0011223344556677 --reason 'stolen'\n");
  CLI::App* add = AddCommand(
      keys, "add", "register a public key on the server",
      "  tilewright modules keys add release.key.pub --name 'release team'\n"
      "\nThe server accepts signatures by registered keys only. Needs the role admin on a fleet "
      "with\n"
      "TLS. The key of tilewright-tuner --module-key is registered by itself.\n");
  add->add_option("FILE", o->path, "public key (FILE.pub of 'modules keygen')")->required();
  add->add_option("--name", o->name, "whose it is (default: the file's name)");
  CLI::App* list = AddCommand(keys, "list", "registered keys, revoked ones, too",
                              "  tilewright modules keys list -o json\n");
  for (CLI::App* command : {add, list}) {
    AddServer(command, &o->server);
    AddFormat(command, kOutputFlag, &o->format);
  }
  add->callback([=] { *action = [o] { return ModulesKeysAdd(*o); }; });
  list->callback([=] { *action = [o] { return ModulesKeysList(o->server, o->format); }; });
  CLI::App* revoke_key =
      AddCommand(keys, "revoke", "revoke a key, with all that it released",
                 "  tilewright modules keys revoke 0011223344556677 --reason 'the key was stolen'\n"
                 "\nFor ever: a revoked key cannot be added again. Needs the role admin on a fleet "
                 "with TLS.\n");
  revoke_key->add_option("KEY", revoking->key_id, "its id, or a file with it")->required();
  CLI::App* revoke =
      AddCommand(group, "revoke", "take back the release of a version",
                 "  tilewright modules revoke dqn/3 --key release.key.pub --reason 'wrong result'\n"
                 "\n'modules fetch' with that key refuses the version then (exit code 5) and shows "
                 "the reason.\n"
                 "Another key can still release it; the same one cannot.\n");
  revoke->add_option("MODULE", revoking->name, kOneVersionHelp)->required();
  revoke->add_option("--key", revoking->key_id, "who released it: id of the key, or a file with it")
      ->required();
  for (CLI::App* command : {revoke_key, revoke}) {
    command->add_option("--reason", revoking->reason, "why; clients show it")->required();
    AddServer(command, &revoking->server);
    AddFormat(command, kOutputFlag, &revoking->format);
  }
  revoke_key->callback([=] { *action = [revoking] { return ModulesKeysRevoke(*revoking); }; });
  revoke->callback([=] { *action = [revoking] { return ModulesRevoke(*revoking); }; });
}

}  // namespace

void AddModules(CLI::App* app, Action* action) {
  CLI::App* group = AddGroup(app, "modules", "finished modules of a server",
                             "  tilewright modules list --server tuner:7000\n"
                             "  tilewright modules fetch dqn@stable -o dqn.tw --if-newer\n"
                             "  tilewright modules verify dqn.tw --key release.key.pub\n");
  AddLooking(group, action);
  AddFetch(group, action);
  AddAliases(group, action);
  AddPrune(group, action);
  AddSigning(group, action);
  AddRelease(group, action);
  AddReleaseKeys(group, action);
}

}  // namespace tilewright::cli
