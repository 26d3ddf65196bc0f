// Flags, help and examples of the commands around certificates and tokens.
#include <memory>

#include "tuner_server/cli/certs_commands.h"
#include "tuner_server/cli/command_flags.h"
#include "tuner_server/cli/token_commands.h"

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

// Whom a certificate is for.
void AddLeaf(CLI::App* command, CertsOptions* options) {
  command->add_option("KIND", options->kind, "tracker, tuner, agent or client")->required();
  command->add_option("NAME", options->name, "of the daemon, agent, person or pipeline")
      ->required();
  command->add_option("--host", options->hosts, "name or address that clients dial; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--identity", options->identity,
                      "folder to make (default AUTHORITY/issued/NAME)");
  AddDays(command, options, "valid for this long (default 90)");
  AddFormat(command, kOutputFlag, &options->format);
}

void AddRequestAndSign(CLI::App* group, const std::shared_ptr<CertsOptions>& o, Action* action) {
  CLI::App* request = AddCommand(
      group, "request", "an own key, and a request to sign it: the key never leaves the machine",
      "  bench-3$ tilewright certs request /etc/tilewright/agent\n"
      "  admin$   tilewright certs sign pki request.pem agent bench-3\n"
      "\nThen pki/issued/bench-3/*.pem goes into the folder of the request. To renew: the same\n"
      "again, with the key that is there.\n");
  request->add_option("IDENTITY", o->identity, "folder, made when it is not there")->required();
  AddFormat(request, kOutputFlag, &o->format);
  request->callback([=] { *action = [o] { return CertsRequest(*o); }; });

  CLI::App* sign = AddCommand(group, "sign", "the certificate for a request of 'certs request'",
                              "  tilewright certs sign pki request.pem agent bench-3 --days 30\n"
                              "\nOnly the key of the request counts: compare its sha256 with what "
                              "'certs request' printed.\n");
  sign->add_option("AUTHORITY", o->authority, "folder of the authority")->required();
  sign->add_option("REQUEST", o->request, "file of the request")->required();
  AddLeaf(sign, o.get());
  sign->callback([=] { *action = [o] { return CertsSign(*o); }; });
}

void AddTicket(CLI::App* group, const std::shared_ptr<CertsOptions>& o, Action* action) {
  CLI::App* ticket = AddCommand(
      group, "ticket", "a one-time ticket: a new agent gets its certificate by itself",
      "  tracker$ tilewright certs ticket pki bench-3 --file tickets > ticket\n"
      "  tracker$ tilewright-tracker ... --enrol-listen 0.0.0.0:7003 --enrol-authority pki \\\n"
      "             --enrol-tickets tickets\n"
      "  bench-3$ tilewright-agent ... --enrol tracker.example.org:7003 --ticket ticket \\\n"
      "             --identity /etc/tilewright/agent\n"
      "\nThe file of a redirection is made readable for its owner alone: the agent refuses "
      "others.\n"
      "The agent's key never leaves it. The ticket names the authority, so that the agent\n"
      "cannot be lured elsewhere, and counts for one key: that one may ask again.\n");
  ticket->add_option("AUTHORITY", o->authority, "folder of the authority")->required();
  ticket->add_option("NAME", o->name, "of the agent")->required();
  ticket->add_option("--file", o->tickets, "ticket file of the tracker (--enrol-tickets)")
      ->required();
  ticket->add_option("--hours", o->hours, "it counts for this long")
      ->check(CLI::Range(0.01, 720.0))
      ->capture_default_str();
  AddFormat(ticket, kOutputFlag, &o->format);
  ticket->callback([=] { *action = [o] { return CertsTicket(*o); }; });
}

void AddIssueAndRenew(CLI::App* group, const std::shared_ptr<CertsOptions>& o, Action* action) {
  CLI::App* issue = AddCommand(
      group, "issue", "make an identity: a folder for --identity",
      "  tilewright certs issue pki tracker lab --host tracker.example.org --host 10.0.0.5\n"
      "  tilewright certs issue pki agent bench-3 --days 30 --identity /etc/tilewright/agent\n"
      "\nAn agent is called by the NAME of its certificate. Trackers and tuners can always be\n"
      "dialled as localhost, 127.0.0.1 and ::1.\n");
  issue->add_option("AUTHORITY", o->authority, "folder of the authority")->required();
  AddLeaf(issue, o.get());
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

void AddRevoke(CLI::App* group, const std::shared_ptr<CertsOptions>& o, Action* action) {
  CLI::App* revoke = AddCommand(
      group, "revoke", "certificates that do not count any more, before they end",
      "  tilewright certs revoke pki pki/issued/bench-3\n"
      "  tilewright certs revoke pki 5c1e0f...   (a serial number of 'certs show -o json')\n"
      "\nThen copy pki/crl.pem into the identity folders of the fleet.\n");
  revoke->add_option("AUTHORITY", o->authority, "folder of the authority")->required();
  revoke
      ->add_option("CERTIFICATE", o->revoked,
                   "identity folder, certificate file or serial number; several at will")
      ->required();
  AddFormat(revoke, kOutputFlag, &o->format);
  revoke->callback([=] { *action = [o] { return CertsRevoke(*o); }; });
}

void AddList(CLI::App* group, const std::shared_ptr<CertsOptions>& o, Action* action) {
  auto all = std::make_shared<bool>(false);
  CLI::App* list = AddCommand(
      group, "list", "all certificates that an authority has signed: who, until when, revoked",
      "  tilewright certs list pki\n"
      "  tilewright certs list pki --all -o json\n"
      "\nAlso those of tickets and requests. What they may do: 'tilewright tokens list', 'tokens "
      "roles'.\n");
  list->add_option("AUTHORITY", o->authority, "folder of the authority")->required();
  list->add_flag("--all", *all, "also certificates that have ended");
  AddFormat(list, kOutputFlag, &o->format);
  list->callback([=] { *action = [o, all] { return CertsList(*o, *all); }; });
}

void AddTokenFile(CLI::App* command, TokensOptions* options) {
  command->add_option("--file", options->file, "token file of the tracker or the tuner (--tokens)")
      ->required();
}

void AddTokenLife(CLI::App* command, TokensOptions* options) {
  command->add_option("--days", options->days, "valid for this long; 0 = until it is revoked")
      ->check(CLI::Range(0, 36'500))
      ->capture_default_str();
  command->add_option("--identity", options->identity,
                      "identity folder to write the token into, instead of printing it");
  AddFormat(command, kOutputFlag, &options->format);
}

}  // namespace

void AddTokens(CLI::App* app, Action* action) {
  auto o = std::make_shared<TokensOptions>();
  CLI::App* group = AddGroup(
      app, "tokens", "who may do what on a fleet with TLS",
      "  tilewright tokens create engineer ana --file tuner-tokens --identity pki/issued/ana\n"
      "  tilewright tokens create agent bench-3 --file tracker-tokens --days 90\n"
      "  tilewright tokens list --file tuner-tokens\n"
      "  tilewright tokens revoke 3f9a0c2b71de --file tuner-tokens\n"
      "\nThe file holds only hashes. A daemon that runs with it notices a change within a\n"
      "second.\n");
  CLI::App* create = AddCommand(
      group, "create", "a new token: printed once, or written into an identity",
      "  tilewright tokens create engineer ana --file tuner-tokens\n"
      "  tilewright tokens create tuner main --file tracker-tokens --identity "
      "pki/issued/main\n"
      "\nAgents and tuners show theirs to the tracker, people and pipelines to the tuner.\n"
      "The NAME of an agent or a tuner is that of its certificate.\n");
  create->add_option("ROLE", o->role, "agent, tuner, ci, engineer or admin")->required();
  create->add_option("NAME", o->name, "of the person, pipeline, agent or tuner")->required();
  AddTokenFile(create, o.get());
  AddTokenLife(create, o.get());
  create->callback([=] { *action = [o] { return TokensCreate(*o); }; });

  CLI::App* list = AddCommand(group, "list", "all tokens, without their secrets",
                              "  tilewright tokens list --file tuner-tokens \\\n"
                              "    --audit /var/lib/tilewright-tuner/audit.jsonl\n"
                              "\nWhat a role may do: 'tilewright tokens roles'. Not every call is "
                              "audited.\n");
  AddTokenFile(list, o.get());
  list->add_option("--audit", o->audit,
                   "audit.jsonl of the daemon: also say when each token was last seen there");
  AddFormat(list, kOutputFlag, &o->format);
  list->callback([=] { *action = [o] { return TokensList(*o); }; });

  CLI::App* roles = AddCommand(group, "roles", "who may call what: the table that daemons obey",
                               "  tilewright tokens roles -o json\n");
  AddFormat(roles, kOutputFlag, &o->format);
  roles->callback([=] { *action = [o] { return TokensRoles(o->format); }; });

  CLI::App* revoke = AddCommand(group, "revoke", "end a token now",
                                "  tilewright tokens revoke 3f9a0c2b71de --file tuner-tokens\n");
  CLI::App* rotate =
      AddCommand(group, "rotate", "a new token for the same role and name; the old one ends soon",
                 "  tilewright tokens rotate 3f9a0c2b71de --file tuner-tokens --grace-hours 24\n");
  for (CLI::App* command : {revoke, rotate}) {
    command->add_option("ID", o->id, "see 'tokens list'")->required();
    AddTokenFile(command, o.get());
  }
  rotate->add_option("--grace-hours", o->grace_hours, "the old token stays valid for this long")
      ->check(CLI::Range(0.0, 24.0 * 365))
      ->capture_default_str();
  AddTokenLife(rotate, o.get());
  revoke->callback([=] { *action = [o] { return TokensRevoke(*o); }; });
  rotate->callback([=] { *action = [o] { return TokensRotate(*o); }; });
}

void AddAudit(CLI::App* app, Action* action) {
  auto path = std::make_shared<std::string>();
  CLI::App* group = AddGroup(app, "audit", "who did what: the audit log of a tracker or a tuner",
                             "  tilewright audit verify /var/lib/tilewright-tuner/audit.jsonl\n");
  CLI::App* verify =
      AddCommand(group, "verify", "whether a line was changed, removed or put in",
                 "  tilewright audit verify /var/lib/tilewright-tuner/audit.jsonl\n");
  verify->add_option("FILE", *path, "audit.jsonl of the daemon's state folder")->required();
  verify->callback([=] { *action = [path] { return AuditVerify(*path); }; });
}

void AddCerts(CLI::App* app, Action* action) {
  auto o = std::make_shared<CertsOptions>();
  CLI::App* group = AddGroup(app, "certs", "certificates of a fleet with TLS", kFirstSteps);
  AddInitAndRotate(group, o, action);
  AddIssueAndRenew(group, o, action);
  AddRequestAndSign(group, o, action);
  AddTicket(group, o, action);
  AddRevoke(group, o, action);
  AddList(group, o, action);
  CLI::App* show =
      AddCommand(group, "show", "what a certificate says, and whether an identity can be used",
                 "  tilewright certs show pki/issued/ana -o json\n");
  show->add_option("PATH", o->identity, "folder or PEM file")->required();
  AddFormat(show, kOutputFlag, &o->format);
  show->callback([=] { *action = [o] { return CertsShow(o->identity, o->format); }; });
}

}  // namespace tilewright::cli
