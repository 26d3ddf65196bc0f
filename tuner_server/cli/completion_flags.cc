// `tilewright completion`: the commands that were declared, as a script for a shell.
#include <memory>

#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/command_flags.h"
#include "tuner_server/cli/completion.h"

namespace tilewright::cli {
namespace {

// The values of a check by a fixed list: CLI11 keeps them only as text, "{a,b,c}".
std::vector<std::string> ValuesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  std::vector<std::string> values;
  if (open == std::string::npos || close == std::string::npos) return values;
  std::string word;
  for (const char c : type.substr(open + 1, close - open)) {
    if (c == ',' || c == '}') {
      values.push_back(word);
      word.clear();
    } else {
      word += c;
    }
  }
  return values;
}

CompletionCommand Describe(const CLI::App& app) {
  CompletionCommand command{app.get_name(), app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() && option->get_lnames().empty()) continue;
    CompletionFlag flag;
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    flag.what = option->get_description();
    flag.takes_value = option->get_items_expected_max() > 0;
    if (flag.takes_value) flag.values = ValuesOf(*option);
    if (!flag.names.empty()) command.flags.push_back(std::move(flag));
  }
  for (const CLI::App* child : app.get_subcommands([](const CLI::App*) { return true; })) {
    command.commands.push_back(Describe(*child));
  }
  return command;
}

int PrintCompletion(const CLI::App* app, const std::string& shell) {
  CompletionCommand root = Describe(*app);
  root.name = "tilewright";
  const auto script = CompletionScript(root, shell);
  if (script.ok()) PrintRaw(*script);
  return Finish("completion", "cannot write the script", script.status());
}

}  // namespace

void AddCompletion(CLI::App* app, Action* action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = AddCommand(
      app, "completion", "print a script that completes commands and flags in your shell",
      "  source <(tilewright completion bash)                                  # in ~/.bashrc\n"
      "  tilewright completion zsh > ~/.zfunc/_tilewright                      # a folder of "
      "$fpath\n"
      "  tilewright completion fish > ~/.config/fish/completions/tilewright.fish\n");
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([=] { *action = [app, shell] { return PrintCompletion(app, *shell); }; });
}

}  // namespace tilewright::cli
