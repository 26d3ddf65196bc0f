#include "tuner_server/log/task_renames.h"

#include <cctype>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tuner_server/log/sqlite_rows.h"

namespace tilewright::log {
namespace {

using support::StrCat;

constexpr std::string_view kBlockedConv = " = conv2d_blocked(", kConv = " = conv2d(";
constexpr std::string_view kDense = " = dense(", kSquares = "\"NKnk\"";
constexpr std::string_view kAttention = " = attention(", kLayout = "_layout=\"";
constexpr std::string_view kFarWeight = "  far_weight %", kColdWeight = "  cold_weight %";

struct Type {
  std::string element;
  std::vector<std::string> shape;
};
// By the number of the value: "3" → f32[1,64].
using Types = std::map<std::string, Type, std::less<>>;

// What lies between two words; nothing where they are not there in this order.
std::optional<std::string_view> Between(std::string_view line, std::string_view before,
                                        std::string_view behind) {
  const size_t first = line.find(before);
  if (first == line.npos) return std::nullopt;
  const size_t begin = first + before.size(), end = line.find(behind, begin);
  if (end == line.npos) return std::nullopt;
  return line.substr(begin, end - begin);
}

// "  weight %1: f32[2,3]" and "  %3: f32[4] = …" say the type of a value.
void ReadType(std::string_view line, Types* types) {
  const auto number = Between(line, "%", ": "), element = Between(line, ": ", "["),
             shape = Between(line, "[", "]");
  if (number && element && shape) {
    types->insert_or_assign(std::string(*number),
                            Type{std::string(*element), support::Split(*shape, ',')});
  }
}

// The types of the two operands behind `call`; nothing where they are not known.
std::optional<std::pair<Type, Type>> Operands(std::string_view line, std::string_view call,
                                              const Types& types) {
  const auto data = Between(line.substr(line.find(call)), "(%", ", ");
  const auto weight = Between(line.substr(line.find(call)), ", %", ")");
  if (!data || !weight) return std::nullopt;
  const auto x = types.find(*data), w = types.find(*weight);
  if (x == types.end() || w == types.end()) return std::nullopt;
  return std::pair(x->second, w->second);
}

// Dense weights were [o, i, h, w, i block, o block]; of bytes with squares for a matrix unit the
// last two the other way round, or with four input channels in a seventh dimension. Depthwise ones
// were [o, h, w, block].
std::optional<std::string> BlockedWeights(const Type& w, std::string* groups) {
  const std::vector<std::string>& s = w.shape;
  if (s.size() == 4) {
    const auto blocks = support::ParseInt64(s[0]), block = support::ParseInt64(s[3]);
    if (!blocks || !block) return std::nullopt;
    *groups = StrCat(*blocks * *block);
    return StrCat("OHW", s[3], "o");
  }
  if (s.size() == 7) return StrCat("OIHW", s[4], "i", s[5], "o", s[6], "i");
  if (s.size() != 6) return std::nullopt;
  return w.element == "i8" ? StrCat("OIHW", s[4], "o", s[5], "i")
                           : StrCat("OIHW", s[4], "i", s[5], "o");
}

// Attributes by name, as the text has them: "pads" → "[1,1,1,1]".
std::map<std::string, std::string> ReadAttributes(std::string_view text) {
  std::map<std::string, std::string> attributes;
  std::string name;
  for (const std::string& part : support::Split(text, ',')) {
    // Values are numbers, words or lists: a part without a name goes on with a list.
    const size_t equals = part.find('=');
    if (equals == part.npos) {
      if (!name.empty()) attributes[name] += StrCat(",", part);
      continue;
    }
    name = std::string(support::Trim(std::string_view(part).substr(0, equals)));
    attributes[name] = part.substr(equals + 1);
  }
  return attributes;
}

std::string UpgradedConv(const std::string& line, const Types& types) {
  const auto operands = Operands(line, kBlockedConv, types);
  std::string groups;
  const auto weights = operands ? BlockedWeights(operands->second, &groups) : std::nullopt;
  if (!weights || operands->first.shape.size() != 5) return line;
  auto attributes = ReadAttributes(Between(line, "{", "}").value_or(""));
  if (!groups.empty()) attributes["groups"] = groups;
  attributes["data_layout"] = StrCat("\"NCHW", operands->first.shape[4], "c\"");
  attributes["weight_layout"] = StrCat("\"", *weights, "\"");
  std::vector<std::string> written;
  for (const auto& [name, value] : attributes) written.push_back(StrCat(name, "=", value));
  const size_t call = line.find(kBlockedConv);
  const size_t arguments = call + kBlockedConv.size();
  return StrCat(line.substr(0, call), kConv,
                line.substr(arguments, line.find(')', arguments) - arguments), ") {",
                support::Join(written, ", "), "}");
}

std::string UpgradedDense(std::string line, const Types& types) {
  const auto operands = Operands(line, kDense, types);
  if (!operands || operands->second.shape.size() != 4) return line;
  const std::vector<std::string>& s = operands->second.shape;
  return line.replace(line.find(kSquares), kSquares.size(), StrCat("\"NK", s[2], "n", s[3], "k\""));
}

// Axes were small letters.
std::string UpgradedAttention(std::string line) {
  for (size_t at = line.find(kLayout); at != line.npos; at = line.find(kLayout, at + 1)) {
    for (size_t i = at + kLayout.size(); i < line.size() && line[i] != '"'; ++i) {
      line[i] = static_cast<char>(std::toupper(static_cast<unsigned char>(line[i])));
    }
  }
  return line;
}

bool MayBeOld(std::string_view text) {
  return text.find(kBlockedConv) != text.npos || text.find(kSquares) != text.npos ||
         text.find(kAttention) != text.npos || text.find(kFarWeight) != text.npos;
}

}  // namespace

std::string UpgradedTaskText(std::string_view text) {
  if (!MayBeOld(text)) return std::string(text);
  Types types;
  std::vector<std::string> lines;
  for (std::string& line : support::Split(text, '\n')) {
    ReadType(line, &types);
    if (line.starts_with(kFarWeight)) line.replace(0, kFarWeight.size(), kColdWeight);
    if (line.find(kBlockedConv) != line.npos) {
      line = UpgradedConv(line, types);
    } else if (line.find(kDense) != line.npos && line.find(kSquares) != line.npos) {
      line = UpgradedDense(std::move(line), types);
    } else if (line.find(kAttention) != line.npos) {
      line = UpgradedAttention(std::move(line));
    }
    lines.push_back(std::move(line));
  }
  return support::Join(lines, "\n");
}

void UpgradeTask(std::string* text, std::string* hash) {
  std::string now = UpgradedTaskText(*text);
  if (now == *text || support::Sha256Hex(*text) != *hash) return;
  *hash = support::Sha256Hex(now);
  *text = std::move(now);
}

namespace {

struct Renamed {
  std::string text, old_hash, hash;
};

absl::StatusOr<std::vector<Renamed>> FindOldNames(sql::Database* db) {
  TW_ASSIGN(sql::Statement find,
            db->Prepare("SELECT DISTINCT text, hash FROM tasks WHERE instr(text, ?1) OR "
                        "instr(text, ?2) OR instr(text, ?3)"));
  find.BindText(1, kBlockedConv).BindText(2, kSquares).BindText(3, kAttention);
  std::vector<Renamed> renamed;
  while (true) {
    TW_ASSIGN(const bool row, find.Step());
    if (!row) return renamed;
    Renamed task{find.ColumnText(0), find.ColumnText(1), find.ColumnText(1)};
    UpgradeTask(&task.text, &task.hash);
    if (task.hash != task.old_hash) renamed.push_back(std::move(task));
  }
}

// ?1 is the new hash, ?2 the old one, ?3 the new text.
absl::Status Update(sql::Database* db, const std::string& statement, const Renamed& task) {
  TW_ASSIGN(sql::Statement update, db->Prepare(statement));
  const std::string_view values[] = {task.hash, task.old_hash, task.text};
  for (int i = 0; i < std::ssize(values); ++i) {
    const bool used = statement.find(StrCat("?", i + 1)) != statement.npos;
    if (used) update.BindText(i + 1, values[i]);
  }
  return update.Run();
}

}  // namespace

absl::Status RenameTasks(sql::Database* db) {
  TW_ASSIGN(const std::vector<Renamed> renamed, FindOldNames(db));
  if (renamed.empty()) return absl::OkStatus();
  TW_ASSIGN(sql::Transaction transaction, sql::Transaction::Begin(db));
  for (const Renamed& task : renamed) {
    TW_TRY(Update(db, SealedUpdate<TaskRow>({{"hash", "?1"}, {"text", "?3"}}, "hash = ?2"), task));
    TW_TRY(Update(db, SealedUpdate<RecordRow>({{"task_hash", "?1"}}, "task_hash = ?2"), task));
    TW_TRY(Update(db,
                  SealedUpdate<ModuleVersionRow>({{"task_hashes", "replace(task_hashes, ?2, ?1)"}},
                                                 "instr(task_hashes, ?2)"),
                  task));
  }
  return transaction.Commit();
}

}  // namespace tilewright::log
