// Sums of products of fields of words (weights of four or eight bits with fixed-point activations,
// op/fixed_point_dense.h), which a second reduction scales and adds up group by group. The sums of
// a group stay in registers; words are read once for all limbs of the activations. The stages
// before are tiny next to the words: one thread makes them, for all.
//   …; parallel n_0 { for m { for g { for w, i { sums[i,16] = dot4(…) }  y_l[16] += f(sums, g) }
//                             y[m, n_0 · 16 + lane] = y_l } }
#include <algorithm>

#include "compiler/space/default_scheduler.h"
#include "deploy/support/strings.h"

namespace tilewright::space {

using ir::Stmt;
using ir::StmtNode;
using support::StrCat;

namespace {
constexpr int64_t kShortLoop = 3;  // over limbs, or the fields of a byte
}  // namespace

bool DefaultScheduler::RunFieldSums() {
  const std::optional<FieldSums> found = FindFieldSums(schedule_.function(), target_.machine);
  if (!found.has_value()) return false;
  std::vector<std::string> before = schedule_.BlockNames();
  before.erase(std::find(before.begin(), before.end(), found->sums), before.end());
  serial_ = true;
  for (const std::string& name : before) {
    done_.push_back(name);
    if (BlockOf(name)->init != nullptr) {
      choices_[name].along_reduction = 1;
      ScheduleReduction(name);
      continue;
    }
    ScheduleElementwise(name);
    for (const int loop : schedule_.LoopsOf(schedule_.BlockHandle(name))) {
      const StmtNode& s = *schedule_.StmtOf(loop);
      const int64_t turns = ExtentOf(s.range.extent);
      if (s.for_kind == ir::ForKind::kSerial && turns > 1 && turns <= kShortLoop)
        Try({.kind = StepKind::kUnroll, .handles = {loop}});
    }
  }
  serial_ = false;
  ScheduleFieldSums(*found);
  for (const std::string& name : schedule_.BlockNames()) {
    if (std::find(tiled_.begin(), tiled_.end(), name) == tiled_.end()) ScheduleElementwise(name);
  }
  return true;
}

void DefaultScheduler::ScheduleFieldSums(const FieldSums& fields) {
  const Within rule(this, "field_sums", fields.result);
  const int64_t work = WorkOf(*BlockOf(fields.sums));
  for (const std::string& name : {fields.sums, fields.result}) {
    done_.push_back(name);
    tiled_.push_back(name);
  }
  const std::string target = TargetOf(*BlockOf(fields.result));
  if (target.empty()) return;
  const int64_t blocks = std::max<int64_t>(1, ChoiceOf(fields.result).vectors);
  std::vector<int> outside = schedule_.LoopsOf(schedule_.BlockHandle(target));
  const std::vector<int> columns = SplitColumns(outside.back(), blocks, fields);
  if (columns.empty()) return;
  outside.pop_back();  // rows
  std::vector<int> order = {columns[0]};
  order.insert(order.end(), outside.begin(), outside.end());
  const int at = order.back();
  order.insert(order.end(), columns.begin() + 1, columns.end());
  if (order.size() > 1) Try({.kind = StepKind::kReorder, .handles = order});
  const int result = schedule_.BlockHandle(fields.result);
  if (!Try({.kind = StepKind::kComputeAt, .handles = {result, at}})) return;
  std::vector<int> inside = schedule_.LastResults();
  Try({.kind = StepKind::kSetScope, .handles = {result}, .word = "local"});
  const int groups = inside.back();
  const std::vector<int> lanes = SplitColumns(inside[inside.size() - 2], blocks, fields);
  if (lanes.empty()) return;
  order.assign({groups});
  order.insert(order.end(), lanes.begin(), lanes.end());
  Try({.kind = StepKind::kReorder, .handles = order});
  PlaceFieldSums(fields, groups);
  for (const std::vector<int>* loops : {&lanes, &columns}) {
    for (size_t i = loops == &columns ? 1 : 0; i + 1 < loops->size(); ++i) {
      Try({.kind = StepKind::kUnroll, .handles = {(*loops)[i]}});
    }
    Try({.kind = StepKind::kVectorize, .handles = {loops->back()}});
  }
  if (explains()) {
    Decide(StrCat(blocks, " blocks of columns in registers, dot products of fields"),
           StrCat(fields.intrinsic, fields.lanes, " reads words as they are"));
  }
  ParallelOuter({columns[0]}, work, ChoiceOf(target).parallel);
}

// The loop over columns as tiles, their blocks, vectors of a block and lanes.
std::vector<int> DefaultScheduler::SplitColumns(int loop, int64_t blocks, const FieldSums& fields) {
  Step split{.kind = StepKind::kSplit, .handles = {loop}, .factors = {kInfer}};
  for (const int64_t part : {blocks, fields.block / fields.lanes}) {
    if (part > 1) split.factors.push_back(part);
  }
  split.factors.push_back(fields.lanes);
  return Try(split) ? schedule_.LastResults() : std::vector<int>();
}

// The sums of one group within the loop over groups, written out.
void DefaultScheduler::PlaceFieldSums(const FieldSums& fields, int groups) {
  const int sums = schedule_.BlockHandle(fields.sums);
  if (!Try({.kind = StepKind::kComputeAt, .handles = {sums, groups}})) return;
  const std::vector<int> own = schedule_.LastResults();
  Try({.kind = StepKind::kSetScope, .handles = {sums}, .word = "local"});
  std::vector<int> order = {own[static_cast<size_t>(fields.word_axis)]};
  std::vector<int> nest;
  for (size_t i = 0; i < own.size(); ++i) {
    const int axis = static_cast<int>(i);
    if (axis == fields.word_axis || axis == fields.lane_axis) continue;
    (axis > fields.word_axis ? nest : order).push_back(own[i]);
  }
  int lanes = own[static_cast<size_t>(fields.lane_axis)];
  if (fields.block > fields.lanes) {
    if (!Try({.kind = StepKind::kSplit, .handles = {lanes}, .factors = {kInfer, fields.lanes}}))
      return;
    order.push_back(schedule_.LastResults()[0]);
    lanes = schedule_.LastResults()[1];
  }
  const std::vector<int> unrolled = order;
  order.push_back(lanes);
  order.insert(order.end(), nest.begin(), nest.end());
  if (!Try({.kind = StepKind::kReorder, .handles = order})) return;
  for (const int loop : unrolled) {
    if (!ir::IsInt(schedule_.StmtOf(loop)->range.extent, 1))
      Try({.kind = StepKind::kUnroll, .handles = {loop}});
  }
  Try({.kind = StepKind::kTensorize,
       .handles = {lanes},
       .options = {{"intrin", StrCat(fields.intrinsic, fields.lanes)}}});
}

}  // namespace tilewright::space
