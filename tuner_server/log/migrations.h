// The schema of tuner.db, one numbered step per release that changes it. A step that has shipped
// never changes; an older file is brought forward at open. Constant data; safe from any thread.
#pragma once

#include <span>

#include "deploy/sql/database.h"

namespace tilewright::log {

std::span<const sql::Migration> TuningLogMigrations();

}  // namespace tilewright::log
