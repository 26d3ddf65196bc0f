// software_pipeline: iterations of a loop overlap. A mark only; inject_software_pipeline acts on
// it.
#include <algorithm>

#include "compiler/schedule/legality.h"
#include "compiler/schedule/primitives.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using ir::Stmt;
using support::StrCat;

struct Part {
  Stmt nest;
  int64_t stage;
  std::vector<BlockSite> sites;
};

bool Uses(const Part& p, const ir::Buffer& b, bool writes_only) {
  return std::any_of(p.sites.begin(), p.sites.end(), [&](const BlockSite& site) {
    return Writes(*site.block, b) || (!writes_only && Reads(*site.block, b));
  });
}

std::vector<ir::Buffer> BuffersOf(const std::vector<Part>& parts) {
  std::vector<ir::Buffer> buffers;
  for (const Part& p : parts) {
    for (const BlockSite& site : p.sites) {
      for (const ir::BufferRegion& r : site.block->writes) {
        if (std::find(buffers.begin(), buffers.end(), r.buffer) == buffers.end())
          buffers.push_back(r.buffer);
      }
    }
  }
  return buffers;
}

// A buffer that an early part leaves for a later one gets one copy for each iteration under way:
// possible when no iteration leaves anything in it for the next or for others.
std::string WhyNotPrivate(const Schedule& s, const Stmt& loop, const ir::Buffer& buffer) {
  if (buffer->role != ir::Role::kIntermediate) return "is no intermediate";
  for (const BlockSite& site : BlocksIn(s.function().body)) {
    bool writes = Writes(*site.block, buffer);
    if (!writes && !Reads(*site.block, buffer)) continue;
    if (!IsBelow(site, loop->var)) return "is used outside of the loop";
    Feeds feeds = FeedsOf(*site.block, loop->var);
    if (writes && (feeds.reduce || feeds.ordered)) return "carries values between iterations";
  }
  return "";
}

std::string WhyNotPipelined(const Schedule& s, const Stmt& loop, const std::vector<Part>& parts) {
  for (const ir::Buffer& b : BuffersOf(parts)) {
    for (size_t i = 0; i < parts.size(); ++i) {
      for (size_t j = i + 1; j < parts.size(); ++j) {
        bool both = Uses(parts[i], b, false) && Uses(parts[j], b, false) &&
                    (Uses(parts[i], b, true) || Uses(parts[j], b, true));
        if (!both || parts[i].stage == parts[j].stage) continue;
        if (parts[i].stage > parts[j].stage) {
          return StrCat("expected stages in the order of the values, found that part ", j + 1,
                        " runs ahead of part ", i + 1, ", which uses ", b->name, " first");
        }
        std::string why = WhyNotPrivate(s, loop, b);
        if (!why.empty())
          return StrCat(
              "expected that what passes between stages belongs to one iteration, found "
              "that ",
              b->name, " ", why);
      }
    }
  }
  return "";
}

absl::Status CheckStages(const Step& step, const Stmt& loop) {
  size_t parts = loop->body->kind == ir::StmtKind::kSeq ? loop->body->stmts.size() : 1;
  bool nests =
      parts > 1 && std::all_of(loop->body->stmts.begin(), loop->body->stmts.end(),
                               [](const Stmt& p) { return p->kind == ir::StmtKind::kFor; });
  if (!nests) return Refuse(step, "form", "expected several nests in the loop's body", loop);
  const auto& stages = step.factors;
  auto [least, most] = std::minmax_element(stages.begin(), stages.end());
  if (stages.size() != parts || *least != 1 || *most < 2) {
    return Refuse(step, "stages",
                  StrCat("expected one stage for each of ", parts,
                         " nests, the first 1 and the last at least 2, found ", ToText(step)),
                  loop);
  }
  const int64_t* extent = ir::AsInt(loop->range.extent);
  if (extent == nullptr || ir::AsInt(loop->range.min) == nullptr || *extent < *most) {
    return Refuse(step, "extent",
                  StrCat("expected a constant range of at least ", *most, " iterations"), loop);
  }
  bool two = std::all_of(stages.begin(), stages.end(),
                         [&, top = *most](int64_t k) { return k == 1 || k == top; });
  if (step.Option("async") == "1" && !two)
    return Refuse(step, "stages", "expected two stages with async=1, found more", loop);
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplySoftwarePipeline(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, LoopPath(s, step, 0));
  const Stmt& loop = path.back();
  TW_TRY(CheckSerial(step, loop));
  if (loop->annotations.contains("pipeline"))
    return Refuse(step, "twice", "expected a loop without a pipeline, found one", loop);
  TW_TRY(CheckStages(step, loop));
  std::vector<Part> parts;
  for (size_t i = 0; i < step.factors.size(); ++i) {
    const Stmt& nest = loop->body->stmts[i];
    parts.push_back({nest, step.factors[i] - 1, BlocksIn(nest)});
  }
  std::string why = WhyNotPipelined(s, loop, parts);
  if (!why.empty()) return Refuse(step, "dependence", why, loop);
  std::vector<Stmt> marked;
  for (const Part& p : parts) {
    auto nest = std::make_shared<ir::StmtNode>(*p.nest);
    nest->annotations["pipeline_stage"] = p.stage;
    marked.push_back(std::move(nest));
  }
  auto node = std::make_shared<ir::StmtNode>(*loop);
  node->annotations["pipeline"] = std::string(step.Option("order"));
  if (step.Option("async") == "1") node->annotations["pipeline_async"] = 1;
  node->body = ir::MakeSeq(std::move(marked));
  s.SetBody(ReplaceAt(path, path.size() - 1, std::move(node)));
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
