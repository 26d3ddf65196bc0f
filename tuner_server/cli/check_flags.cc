// Flags, help and examples of the commands about models that are not compiled yet.
#include <memory>

#include "tuner_server/cli/check_command.h"
#include "tuner_server/cli/command_flags.h"

namespace tilewright::cli {

void AddCheck(CLI::App* app, Action* action) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command =
      AddCommand(app, "check", "list everything that keeps a model from compiling",
                 "  tilewright check model.onnx\n"
                 "  tilewright check model.onnx --target cpu,arch=x86_64,cpu=znver4 -o json\n"
                 "  tilewright check model.onnx --shape batch=1 --shape image=1x3x224x224\n"
                 "\nExit code 0: it compiles; 1: it does not.\n");
  command->add_option("MODEL", options->model_path, "ONNX file")->required();
  command->add_option("--target", options->target, "target, see 'tilewright targets'")
      ->capture_default_str();
  command->add_option("--shape", options->shapes, "input shape NAME=1x3x224x224; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  AddFormat(command, kOutputFlag, &options->format);
  command->callback([=] { *action = [options] { return CheckModel(*options); }; });
}

void AddOperators(CLI::App* app, Action* action) {
  auto format = std::make_shared<std::string>("table");
  CLI::App* command =
      AddCommand(app, "operators", "the ONNX operators and types that models may have",
                 "  tilewright operators\n  tilewright operators -o json\n");
  command->add_option(kOutputFlag, *format, "table, json or markdown")
      ->check(CLI::IsMember({"table", "json", "markdown"}))
      ->capture_default_str();
  command->callback([=] {
    *action = [format] {
      return ListOperators(*format == "json"       ? OperatorsFormat::kJson
                           : *format == "markdown" ? OperatorsFormat::kMarkdown
                                                   : OperatorsFormat::kTable);
    };
  });
}

}  // namespace tilewright::cli
