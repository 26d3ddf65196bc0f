// Flags, help and examples of the commands around certificates and tokens.
#include <memory>

#include "tuner_server/cli/certs_commands.h"
#include "tuner_server/cli/command_flags.h"

namespace tilewright::cli {
namespace {

constexpr char kFirstSteps[] =
    "  tilewright certs init pki --name 'Example fleet'\n"
    "  tilewright certs issue pki tracker lab --host tracker.example.org --host 10.0.0.5\n"
    "  tilewright certs issue pki tuner main --host tuner.example.org\n"
    "  tilewright certs issue pki agent bench-3\n"
    "  tilewright certs issue pki client ana\n"
    "  tilewright certs show pki/issued/ana\n";

void AddDays(CLI::App* command, CertsOptions* options, const std::string& what) {
  command->add_option("--days", options->days, what)->check(CLI::Range(1, 36'500));
}

void AddInitAndRotate(CLI::App* group, const std::shared_ptr<CertsOptions>& o, Action* action) {
  o->name = "Tilewright fleet";
  CLI::App* init = AddCommand(group, "init", "make a private certificate authority",
                              "  tilewright certs init pki --name 'Example fleet'\n");
  init->add_option("AUTHORITY", o->authority, "folder to make")->required();
  init->add_option("--name", o->name, "for people")->capture_default_str();
  AddDays(init, o.get(), "valid for this long (default 3650)");
  init->callback([=] { *action = [o] { return CertsInit(*o); }; });

  auto retire = std::make_shared<bool>(false);
  CLI::App* rotate =
      AddCommand(group, "rotate", "change the authority in three steps",
                 "  tilewright certs rotate pki\n"
                 "  tilewright certs renew pki pki/issued/ana     (each identity)\n"
                 "  tilewright certs rotate pki --retire          (and renew again)\n"
                 "\nUntil the old authority is retired both are trusted.\n");
  rotate->add_option("AUTHORITY", o->authority, "folder of the authority")->required();
  rotate->add_flag("--retire", *retire, "trust only the newest authority");
  AddDays(rotate, o.get(), "the new one is valid for this long (default 3650)");
  rotate->callback([=] { *action = [o, retire] { return CertsRotate(*o, *retire); }; });
}

void AddIssueAndRenew(CLI::App* group, const std::shared_ptr<CertsOptions>& o, Action* action) {
  CLI::App* issue = AddCommand(
      group, "issue", "make an identity: a folder for --identity",
      "  tilewright certs issue pki tracker lab --host tracker.example.org --host 10.0.0.5\n"
      "  tilewright certs issue pki agent bench-3 --days 30 --identity /etc/tilewright/agent\n"
      "\nAn agent's NAME is its --name. Trackers and tuners can always be dialled as localhost,\n"
      "127.0.0.1 and ::1.\n");
  issue->add_option("AUTHORITY", o->authority, "folder of the authority")->required();
  issue->add_option("KIND", o->kind, "tracker, tuner, agent or client")->required();
  issue->add_option("NAME", o->name, "of the daemon, agent, person or pipeline")->required();
  issue->add_option("--host", o->hosts, "name or address that clients dial; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  issue->add_option("--identity", o->identity, "folder to make (default AUTHORITY/issued/NAME)");
  AddDays(issue, o.get(), "valid for this long (default 90)");
  AddFormat(issue, kOutputFlag, &o->format);
  issue->callback([=] { *action = [o] { return CertsIssue(*o); }; });

  CLI::App* renew = AddCommand(group, "renew", "a new key and date for an identity, in place",
                               "  tilewright certs renew pki pki/issued/ana --days 30\n"
                               "\nPrograms that use the folder notice within ten seconds.\n");
  renew->add_option("AUTHORITY", o->authority, "folder of the authority")->required();
  renew->add_option("IDENTITY", o->identity, "folder of the identity")->required();
  AddDays(renew, o.get(), "valid for this long (default 90)");
  AddFormat(renew, kOutputFlag, &o->format);
  renew->callback([=] { *action = [o] { return CertsRenew(*o); }; });
}

}  // namespace

void AddCerts(CLI::App* app, Action* action) {
  auto o = std::make_shared<CertsOptions>();
  CLI::App* group = AddGroup(app, "certs", "certificates of a fleet with TLS", kFirstSteps);
  AddInitAndRotate(group, o, action);
  AddIssueAndRenew(group, o, action);
  CLI::App* show =
      AddCommand(group, "show", "what a certificate says, and whether an identity can be used",
                 "  tilewright certs show pki/issued/ana -o json\n");
  show->add_option("PATH", o->identity, "folder or PEM file")->required();
  AddFormat(show, kOutputFlag, &o->format);
  show->callback([=] { *action = [o] { return CertsShow(o->identity, o->format); }; });
}

}  // namespace tilewright::cli
