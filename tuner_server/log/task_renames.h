// Operators that had another name in logs of older versions. A task's text is its identity, so what
// was measured then is found again only under the text of today. For tuner_server/log, and for what
// else keeps tasks in files. A connection belongs to one thread at a time.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "deploy/sql/database.h"

namespace tilewright::log {

// The text of a task as this version writes it; the same text where nothing in it has an old name.
// - conv2d_blocked(x, w), whose layouts followed from ranks, is conv2d with data_layout and
//   weight_layout;
// - the axes in layouts of attention were small letters;
// - the layout NKnk of dense has its blocks' sizes in it;
// - a weight that no cache holds is a cold_weight, once a far_weight.
std::string UpgradedTaskText(std::string_view text);

// The same with the hash that goes with the text; nothing to do if they do not belong together.
void UpgradeTask(std::string* text, std::string* hash);

// Gives tasks, records and module versions the texts and hashes of today, in one transaction. A
// damaged row stays so. REQUIRES: SealRows was ok.
absl::Status RenameTasks(sql::Database* db);

}  // namespace tilewright::log
