// Whether what a tuning log says can be measured again: records drawn from an export are built
// anew, measured by the agent's protocol, and their times compared as ratios to the baseline of the
// moment (a loop of the processor alone, measured before and after each), as in the log.
//   tilewright log export --log tuner.db > log.jsonl
//   log_replay log.jsonl [--records 100] [--seed 1] [--within 5]
// One JSON document on standard output. Records of this machine's processor and one thread only: of
// other ones nothing can be said here.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "compiler/driver/compile.h"
#include "deploy/support/rng.h"
#include "tests/bench/agent_protocol.h"
#include "tests/bench/local_tuner.h"

namespace tilewright::bench {
namespace {

struct Options {
  std::string path;
  int records = 100;
  uint64_t seed = 1;
  double within_percent = 5;
};

struct Record {
  std::string id, task_text, steps, program_hash;
  double median = 0, ratio = 0;  // to the baseline beside it
};

std::vector<Record> ReadRecords(const std::string& path, const target::Target& target) {
  std::vector<Record> records;
  std::ifstream file(path);
  TW_CHECK(file.good()) << "cannot read " << path;
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    const bool counts = row.value("accepted", false) && row.value("valid", false) &&
                        row.value("outcome", "") == "OK" && row.value("threads", 0) == 1 &&
                        row.value("target", "") == target.ToString();
    const double baseline =
        (row.value("baseline_before", 0.0) + row.value("baseline_after", 0.0)) / 2;
    if (!counts || baseline <= 0) continue;
    records.push_back({row["measurement_id"], row["task_text"], row["steps"], row["program_hash"],
                       row["median"], row["median"].get<double>() / baseline});
  }
  return records;
}

double RatioNow(const Record& record, const target::Target& target, AgentProtocol* agent) {
  const auto built =
      Must(driver::BuildCandidate(record.task_text, record.steps, target, nullptr), record.id);
  TW_CHECK(built.program_hash == record.program_hash)
      << record.id << ": this compiler makes another program of these steps";
  const v1::ModuleMeasured measured = agent->Measure(built.module_bytes, 0);
  return MedianOf(measured) / ((measured.baseline_before() + measured.baseline_after()) / 2);
}

int Run(const Options& options) {
  const target::Target target = NativeTarget(1);
  std::vector<Record> records = ReadRecords(options.path, target);
  if (records.empty()) {
    std::fprintf(stderr, "log_replay: %s: no valid record of %s\n", options.path.c_str(),
                 target.ToString().c_str());
    return 1;
  }
  support::Rng rng(options.seed);
  const size_t drawn = std::min(records.size(), static_cast<size_t>(options.records));
  for (size_t i = 0; i < drawn; ++i) {
    std::swap(records[i], records[i + rng.Uniform(records.size() - i)]);
  }
  records.resize(drawn);
  AgentProtocol agent(1, 0);
  std::vector<double> off;
  int within = 0;
  for (const Record& record : records) {
    const double percent = 100 * (RatioNow(record, target, &agent) / record.ratio - 1);
    if (std::abs(percent) <= options.within_percent) {
      ++within;
    } else {
      std::fprintf(stderr, "%s: %.0f ns in the log, now %+.1f %%\n", record.id.c_str(),
                   record.median, percent);
    }
    off.push_back(std::abs(percent));
  }
  std::sort(off.begin(), off.end());
  const auto at = [&](double share) {
    return off[std::min(off.size() - 1,
                        static_cast<size_t>(share * static_cast<double>(off.size())))];
  };
  const nlohmann::json out = {
      {"target", target.ToString()},
      {"records", records.size()},
      {"seed", options.seed},
      {"within_percent", options.within_percent},
      {"share_within", static_cast<double>(within) / static_cast<double>(records.size())},
      {"median_percent", at(.5)},
      {"p95_percent", at(.95)},
      {"worst_percent", off.back()}};
  std::printf("%s\n", out.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) {
  tilewright::bench::Options options;
  CLI::App app("Measures records of a tuning log again.", "log_replay");
  app.add_option("log", options.path, "an export: tilewright log export")->required();
  app.add_option("--records", options.records, "how many are drawn")->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "of the draw");
  app.add_option("--within", options.within_percent, "percent that count as the same");
  CLI11_PARSE(app, argc, argv);
  return tilewright::bench::Run(options);
}
