// Flags, help and examples of `tilewright backup`.
#include <memory>

#include "tuner_server/cli/backup_commands.h"
#include "tuner_server/cli/command_flags.h"

namespace tilewright::cli {

void AddBackup(CLI::App* app, Action* action) {
  auto o = std::make_shared<BackupOptions>();
  CLI::App* group =
      AddGroup(app, "backup", "save and restore the state of a tracker or a tuner",
               "  tilewright backup create /var/lib/tilewright-tuner /backup/tuner-2026-11-22\n"
               "  tilewright backup verify /backup/tuner-2026-11-22\n"
               "  tilewright backup restore /backup/tuner-2026-11-22 /var/lib/tilewright-tuner\n");
  CLI::App* create =
      AddCommand(group, "create", "copy a state folder while the daemon works",
                 "  tilewright backup create /var/lib/tilewright-tuner /backup/tuner-2026-11-22\n");
  create->add_option("STATE", o->state_dir, "the daemon's --state-dir")->required();
  create->add_option("BACKUP", o->backup, "folder to make")->required();
  AddFormat(create, kOutputFlag, &o->format);
  create->callback([=] { *action = [o] { return BackupCreate(*o); }; });

  CLI::App* verify = AddCommand(group, "verify", "check whether a backup is complete",
                                "  tilewright backup verify /backup/tuner-2026-11-22\n");
  verify->add_option("BACKUP", o->backup, "folder")->required();
  AddFormat(verify, kOutputFlag, &o->format);
  verify->callback([=] { *action = [o] { return BackupVerify(*o); }; });

  CLI::App* restore = AddCommand(
      group, "restore", "make a state folder from a backup, before the daemon starts",
      "  tilewright backup restore /backup/tuner-2026-11-22 /var/lib/tilewright-tuner\n");
  restore->add_option("BACKUP", o->backup, "folder")->required();
  restore->add_option("STATE", o->state_dir, "folder to make; must be missing or empty")
      ->required();
  AddFormat(restore, kOutputFlag, &o->format);
  restore->callback([=] { *action = [o] { return BackupRestore(*o); }; });
}

}  // namespace tilewright::cli
