#include "deploy/sql/row_checksum.h"

#include <sqlite3.h>

#include "deploy/support/hash.h"

namespace tilewright::sql {
namespace {

std::string_view Bytes(const void* data, int size) {
  return data == nullptr ? std::string_view()
                         : std::string_view(static_cast<const char*>(data), size);
}

void AddValue(sqlite3_value* value, support::Hasher64* hash) {
  const int type = sqlite3_value_type(value);
  hash->Add(type);
  switch (type) {
    case SQLITE_INTEGER:
      hash->Add(int64_t{sqlite3_value_int64(value)});
      break;
    case SQLITE_FLOAT: {
      const double number = sqlite3_value_double(value);
      hash->Add(number == 0 ? 0.0 : number);  // a file has no -0.0
      break;
    }
    case SQLITE_TEXT: {
      const void* text = sqlite3_value_text(value);  // before its size: it may convert
      hash->Add(Bytes(text, sqlite3_value_bytes(value)));
      break;
    }
    case SQLITE_BLOB: {
      const void* blob = sqlite3_value_blob(value);
      hash->Add(Bytes(blob, sqlite3_value_bytes(value)));
      break;
    }
    default:
      break;
  }
}

void RowChecksum(sqlite3_context* context, int count, sqlite3_value** values) {
  support::Hasher64 hash;
  for (int i = 0; i < count; ++i) AddValue(values[i], &hash);
  sqlite3_result_int64(context, static_cast<sqlite3_int64>(hash.Finish()));
}

}  // namespace

absl::Status AddRowChecksum(Database* db) {
  const int code = sqlite3_create_function_v2(db->handle(), "row_checksum", -1,
                                              SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
                                              nullptr, RowChecksum, nullptr, nullptr, nullptr);
  if (code == SQLITE_OK) return absl::OkStatus();
  return support::Internal("sql.open.failed", sqlite3_errstr(code));
}

}  // namespace tilewright::sql
