// Flags, help and examples of the commands about models that are not compiled yet.
#include <memory>
#include <tuple>

#include "tuner_server/cli/check_command.h"
#include "tuner_server/cli/command_flags.h"
#include "tuner_server/cli/compare_command.h"
#include "tuner_server/cli/quantize_command.h"

namespace tilewright::cli {

void AddCheck(CLI::App* app, Action* action) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command =
      AddCommand(app, "check", "list everything that keeps a model from compiling",
                 "  tilewright check model.onnx\n"
                 "  tilewright check model.onnx --target cpu,arch=x86_64,cpu=znver4 -o json\n"
                 "  tilewright check model.onnx --shape batch=1 --shape image=1x3x224x224\n"
                 "  tilewright check model.onnx --shape batch=1..64\n"
                 "  tilewright check model.onnx --operators acme.ops\n"
                 "\nExit code 0: it compiles; 1: it does not.\n");
  command->add_option("MODEL", options->model_path, "ONNX file")->required();
  command->add_option("--target", options->target, "target, see 'tilewright targets'")
      ->capture_default_str();
  command
      ->add_option("--shape", options->shapes,
                   "input shape NAME=1x3x224x224, or NAME=1..64 of a dimension that stays open; "
                   "repeatable")
      ->allow_extra_args(false)
      ->take_all();
  AddOperatorFiles(command, &options->operators);
  AddFormat(command, kOutputFlag, &options->format);
  command->callback([=] { *action = [options] { return CheckModel(*options); }; });
}

void AddCompare(CLI::App* app, Action* action) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = AddCommand(
      app, "compare", "compare each kernel of a model with the reference",
      "  tilewright compare model.onnx\n"
      "  tilewright compare model.onnx --log tuner.db --input image=cat.npy\n"
      "  tilewright compare model.onnx --disable-pass block_layouts --rtol 1e-4 -o json\n"
      "\nThe reference computes the graph in double precision, which takes a second for about 1\n"
      "GFLOP. A kernel DIFFERS if it computes something else from the operands that it got, and\n"
      "inherits if only its operands differ. The model's outputs are compared with the model as\n"
      "it was imported, before any graph pass. Exit code 5: something differs.\n");
  command->add_option("MODEL", options->model_path, "ONNX file")->required();
  command
      ->add_option("--target", options->target, "target of this machine, see 'tilewright targets'")
      ->capture_default_str();
  command->add_option("--log", options->log_path,
                      "tuning log (SQLite): the best measured schedule of each kernel is used");
  command->add_option("--device-class", options->device_class,
                      "whose records to use (default: the class that knows most kernels)");
  command
      ->add_option("--effort", options->effort_s,
                   "seconds in which the cost model chooses other schedules, as compile does")
      ->check(CLI::Range(0.0, 86'400.0))
      ->capture_default_str();
  for (auto& [flag, values, what] :
       {std::tuple{"--shape", &options->shapes,
                   "input shape NAME=1x3x224x224, or NAME=1..64 of a dimension that stays open; "
                   "repeatable"},
        std::tuple{
            "--disable-pass", &options->disabled_passes,
            "leave out this graph pass ('tilewright compile --print-passes'); repeatable"}}) {
    command->add_option(flag, *values, what)->allow_extra_args(false)->take_all();
  }
  AddOperatorFiles(command, &options->operators);
  AddLibraries(command, &options->libraries);
  AddInputs(command, &options->inputs);
  AddInputSeed(command, &options->seed);
  command
      ->add_option("--rtol", options->precision.rtol,
                   "a result may differ by ATOL + RTOL * the largest number of its tensor")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--atol", options->precision.atol, "see --rtol; integers may differ by 1")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  AddFormat(command, kOutputFlag, &options->format);
  command->callback([=] { *action = [options] { return CompareModel(*options); }; });
}

void AddQuantize(CLI::App* app, Action* action) {
  auto options = std::make_shared<QuantizeCommandOptions>();
  CLI::App* command = AddCommand(
      app, "quantize", "make an int8 model of a float model",
      "  tilewright quantize model.onnx --data calibration/ -o model.int8.onnx\n"
      "  tilewright quantize model.onnx --data images.npy --keep conv_1 --ranges minmax\n"
      "  tilewright quantize model.onnx --weights-only\n"
      "  tilewright quantize model.onnx --data calibration/ --format json\n"
      "\nThe result is an ONNX model with QuantizeLinear and DequantizeLinear around what "
      "computes\n"
      "with integers. Layers are Conv, Gemm and MatMul with constant weights, which get a scale "
      "for\n"
      "each output channel. Additions, pooling and moves between layers work on integers, too.\n"
      "\nThe report has the signal-to-noise ratio of each layer in decibels, worst first. "
      "'alone':\n"
      "this layer alone is quantised; 'in network': all are; 'weights': of its weights. 20 dB is "
      "a\n"
      "noise of a tenth of the signal's size, 40 dB of a hundredth.\n");
  command->add_option("MODEL", options->model_path, "ONNX file")->required();
  command
      ->add_option("--data", options->data,
                   "calibration data: a folder with test_data_set_N/input_K.pb (or .npy); for a\n"
                   "model with one input also a folder of .pb or .npy files, or one file. A file\n"
                   "may have several samples along its first dimension; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("-o,--output", options->output,
                      "model to write (default: the model's name with .int8.onnx, in this folder)");
  command
      ->add_option("--ranges", options->ranges,
                   "how ranges follow from the data: mse (least squared error), minmax, or\n"
                   "percentile=P (so many percent of the numbers are inside; default 99.99)")
      ->capture_default_str();
  command
      ->add_option("--activations", options->activations,
                   "type of the data between layers;\n"
                   "symmetric-int8 (zero points 0) for matrix units")
      ->check(CLI::IsMember({"uint8", "int8", "symmetric-int8"}))
      ->capture_default_str();
  command
      ->add_option("--keep", options->keep,
                   "leave this ONNX node (name, or first output) in float; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  command->add_flag("--weights-only", options->weights_only,
                    "integers for the weights alone: a smaller file, computed in float; needs no "
                    "--data");
  command->add_flag("--no-report", options->no_report,
                    "do not run the quantised model and compare it with the float model");
  command
      ->add_option("--target", options->target,
                   "target of this machine that runs the models, see 'tilewright targets'")
      ->capture_default_str();
  command->add_option("--shape", options->shapes, "input shape NAME=1x3x224x224; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  AddOperatorFiles(command, &options->operators);
  AddFormat(command, kFormatFlag, &options->format);
  command->callback([=] { *action = [options] { return QuantizeModel(*options); }; });
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
