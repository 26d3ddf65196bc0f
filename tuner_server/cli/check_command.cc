#include "tuner_server/cli/check_command.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler/graph/graph.h"
#include "compiler/onnx/onnx_import.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/model_compiler.h"
#include "tuner_server/cli/native_target.h"
#include "tuner_server/cli/operator_files.h"
#include "tuner_server/cli/shape_flags.h"

namespace tilewright::cli {
namespace {

using nlohmann::json;
using support::StrCat;

constexpr size_t kMaxPlaces = 8;  // of one problem, for people; JSON has all

// A problem and what to do about it.
struct Found {
  graph::ImportProblem problem;
  std::string advice;
};

std::vector<Found> WithAdvice(std::vector<graph::ImportProblem> problems) {
  std::vector<Found> all;
  for (graph::ImportProblem& problem : problems) {
    Found found{std::move(problem), ""};
    found.advice = Advice(support::InvalidArgument(found.problem.slug, found.problem.detail));
    all.push_back(std::move(found));
  }
  return all;
}

// Whether the fault is this installation's, not the model's.
bool IsOurs(const absl::Status& status) {
  const std::string slug = support::Slug(status);
  return slug.starts_with("builder.") || slug.starts_with("file.") ||
         slug.starts_with("process.") || slug.starts_with("ir.target");
}

// Compiles the model; an error of it is a problem. Sets the number of kernels.
absl::StatusOr<std::vector<graph::ImportProblem>> TryCompile(const ModelSource& source,
                                                             int64_t* kernels) {
  const auto compile = [&]() -> absl::Status {
    TW_ASSIGN(ModelCompiler compiler, ModelCompiler::Open(source));
    std::string bytes;
    TW_ASSIGN(const v1::ModuleCompiled compiled, compiler.Compile({}, &bytes));
    // Of open sizes, too, whose tasks a job does not have.
    const json summary = json::parse(compiled.manifest_summary_json(), nullptr, false);
    if (!summary.is_object() || !summary.contains("kernels")) {
      return support::Internal("builder.summary.malformed", "expected an object with kernels");
    }
    *kernels = static_cast<int64_t>(summary["kernels"].size());
    return absl::OkStatus();
  };
  const absl::Status status = compile();
  if (status.ok()) return std::vector<graph::ImportProblem>{};
  if (IsOurs(status)) return status;
  return std::vector<graph::ImportProblem>{
      {support::Slug(status), "compiling for " + source.target, support::Detail(status), {}}};
}

// Without the advice.
std::string ProblemText(size_t number, const Found& found) {
  const graph::ImportProblem& problem = found.problem;
  std::string text = StrCat(number, ". ", problem.slug, ": ", problem.what);
  if (problem.where.size() > 1) text += StrCat(" (", problem.where.size(), " places)");
  if (!problem.detail.empty()) text += "\n   why:   " + problem.detail;
  if (!problem.where.empty()) {
    const size_t shown = std::min(kMaxPlaces, problem.where.size());
    text += "\n   where: " + support::Join(std::vector<std::string>(
                                               problem.where.begin(),
                                               problem.where.begin() + static_cast<long>(shown)),
                                           ", ");
    if (shown < problem.where.size()) text += ", ... (all: -o json)";
  }
  return text + "\n";
}

int NodeCount(const graph::ImportCheck& check) {
  int nodes = 0;
  for (const auto& [name, count] : check.operators) nodes += count;
  return nodes;
}

json CheckJson(const CheckOptions& options, const std::string& target,
               const graph::ImportCheck& check, const std::vector<Found>& all, int64_t kernels) {
  json problems = json::array();
  for (const Found& found : all) {
    problems.push_back({{"slug", found.problem.slug},
                        {"what", found.problem.what},
                        {"detail", found.problem.detail},
                        {"where", found.problem.where},
                        {"do", found.advice}});
  }
  return {{"model", options.model_path},  {"target", target},
          {"compiles", all.empty()},      {"opset", check.opset},
          {"operators", check.operators}, {"custom_operators", check.custom},
          {"kernels", kernels},           {"unchecked_nodes", check.unchecked_nodes},
          {"problems", problems}};
}

std::string CheckText(const CheckOptions& options, const std::string& target,
                      const graph::ImportCheck& check, const std::vector<Found>& all,
                      int64_t kernels) {
  std::string text =
      StrCat("model   ", options.model_path, ": opset ", check.opset, ", ", NodeCount(check),
             " nodes of ", check.operators.size(), " operators\ntarget  ", target, "\n");
  for (const auto& [name, file] : check.custom) {
    text +=
        StrCat("custom  ", name, ": ", check.operators.at(name), " nodes, defined in ", file, "\n");
  }
  for (size_t i = 0; i < all.size(); ++i) {
    text += "\n" + ProblemText(i + 1, all[i]);
    // Problems of one kind have one advice, after the last of them.
    const bool last = i + 1 == all.size() || all[i + 1].advice != all[i].advice;
    if (last) text += "   do:    " + all[i].advice + "\n";
  }
  if (check.unchecked_nodes > 0) {
    text += StrCat("\nnot checked: attributes and shapes of ", check.unchecked_nodes,
                   " nodes, because the problems above hide the types of their inputs. Check the "
                   "model again when these are solved.\n");
  }
  if (all.empty()) text += StrCat("compiles: ", kernels, " different kernels\n");
  return text;
}

// The model is in memory no more when the builder reads it.
absl::StatusOr<graph::ImportCheck> CheckImport(const CheckOptions& options,
                                               const log::ModelSizes& sizes) {
  TW_ASSIGN(const graph::OnnxModel onnx,
            OpenModel(options.model_path, options.operators, /*keep_going=*/true));
  graph::ImportOptions import;
  import.shapes = sizes.shapes;
  for (const auto& [name, range] : sizes.open) import.open[name] = {range.min, range.max};
  return graph::CheckOnnx(onnx, import);
}

absl::Status Check(const CheckOptions& options) {
  TW_ASSIGN(const log::ModelSizes sizes, ParseSizes({options.shapes, {}, {}}));
  TW_ASSIGN(const std::string target, ExpandTarget(options.target));
  TW_ASSIGN(graph::ImportCheck check, CheckImport(options, sizes));
  int64_t kernels = 0;
  if (check.problems.empty()) {
    TW_ASSIGN(check.problems, TryCompile({.model_path = options.model_path,
                                          .target = target,
                                          .sizes = sizes,
                                          .operators = options.operators},
                                         &kernels));
  }
  const std::vector<Found> all = WithAdvice(std::move(check.problems));
  if (options.format == OutputFormat::kJson) {
    PrintJson(CheckJson(options, target, check, all, kernels));
  } else {
    PrintOut(CheckText(options, target, check, all, kernels));
  }
  if (all.empty()) return absl::OkStatus();
  return support::FailedPrecondition(
      "cli.check.problems",
      StrCat("found ", all.size(), all.size() == 1 ? " problem" : " problems", ", listed above"));
}

std::string DomainText(const graph::SupportedOperator& row) {
  return row.domain.empty() ? "ai.onnx" : row.domain;
}

}  // namespace

int CheckModel(const CheckOptions& options) {
  return Finish("check", options.model_path + " does not compile", Check(options));
}

std::string OperatorsPage(const graph::OnnxSupport& known) {
  std::string text = StrCat(
      "# ONNX operators and types\n\n"
      "Written by `tilewright operators -o markdown`; do not edit. `tilewright check MODEL` "
      "lists what a model has\nbeyond this.\n\n"
      "- Opsets ",
      known.oldest_opset, " to ", known.newest_opset,
      ".\n- Element types: ", support::Join(known.element_types, ", "),
      ".\n- `--shape NAME=...` gives the sizes that the model leaves open: numbers, or ranges of "
      "one module for all of them.\n- Weights are in the model file, or in other files of its "
      "folder (external data).\n"
      "- Also int4, uint4, int2 and uint2, as bytes: a module has inputs and outputs of int8 and "
      "uint8.\n"
      "- A sequence as an input is one tensor, along whose first dimension its tensors lie.\n"
      "- A sequence as an output is a tensor for each of its tensors, NAME.0, NAME.1 and so on. "
      "Where only a run finds its length, it is one tensor as an input is.\n"
      "- An optional input has to be given. No strings.\n\n"
      "| operator | domain | limits |\n|---|---|---|\n");
  for (const graph::SupportedOperator& row : known.operators) {
    text += StrCat("| ", row.name, " | ", DomainText(row), " | ", row.limits, " |\n");
  }
  return text;
}

int ListOperators(OperatorsFormat format) {
  const graph::OnnxSupport known = graph::SupportedOnnx();
  if (format == OperatorsFormat::kMarkdown) {
    PrintRaw(OperatorsPage(known));
    return kExitOk;
  }
  Table table({{"operator"}, {"domain"}, {"limits"}});
  json rows = json::array();
  for (const graph::SupportedOperator& row : known.operators) {
    table.AddRow({row.name, DomainText(row), row.limits});
    rows.push_back({{"name", row.name}, {"domain", row.domain}, {"limits", row.limits}});
  }
  if (format == OperatorsFormat::kJson) {
    PrintJson({{"opset", {{"oldest", known.oldest_opset}, {"newest", known.newest_opset}}},
               {"element_types", known.element_types},
               {"operators", rows}});
  } else {
    PrintOut(StrCat("opsets ", known.oldest_opset, " to ", known.newest_opset, "; types ",
                    support::Join(known.element_types, ", ")));
    PrintOut(table.Render());
  }
  return kExitOk;
}

}  // namespace tilewright::cli
