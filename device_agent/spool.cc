#include "device_agent/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <optional>
#include <utility>

#include "deploy/support/failpoint.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

constexpr std::string_view kMagic = "TWSPOOL1";
constexpr size_t kHeadBytes = 12;
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;
constexpr int64_t kWorthCompacting = 1 << 20;

void PutNumber(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

uint64_t GetNumber(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[i - 1]);
  return value;
}

bool IsGrant(Record::Kind kind) {
  return kind == Record::Kind::kGrant || kind == Record::Kind::kToken;
}

// The payload of the record at the front of `bytes`; nullopt where there is no whole, intact one.
std::optional<std::string_view> FrontPayload(std::string_view bytes) {
  if (bytes.size() < kHeadBytes) return std::nullopt;
  const uint64_t size = GetNumber(bytes.substr(0, 4));
  if (size == 0 || bytes.size() - kHeadBytes < size) return std::nullopt;
  const std::string_view payload = bytes.substr(kHeadBytes, size);
  if (support::StableHash64(payload) != GetNumber(bytes.substr(4, 8))) return std::nullopt;
  return payload;
}

bool Decode(std::string_view payload, Record* record) {
  const auto kind = static_cast<uint8_t>(payload[0]);
  if (kind < 1 || kind > static_cast<uint8_t>(Record::Kind::kToken)) return false;
  record->kind = static_cast<Record::Kind>(kind);
  const char* data = payload.data() + 1;
  const int size = static_cast<int>(payload.size()) - 1;
  return IsGrant(record->kind) ? record->grant.ParseFromArray(data, size)
                               : record->result.ParseFromArray(data, size);
}

// Bytes that are no record come from a torn write when nothing behind them was ever promised: of
// records that are not synced one by one a power cut may keep a later one and lose an earlier one.
// Any other record was synced together with all that lies before it.
bool AnyPromisedRecordIn(std::string_view bytes) {
  for (size_t at = 1; at + kHeadBytes < bytes.size(); ++at) {
    const auto payload = FrontPayload(bytes.substr(at));
    if (payload && MustBeSynced(static_cast<Record::Kind>((*payload)[0]))) return true;
  }
  return false;
}

class DiskFile final : public SpoolFile {
 public:
  explicit DiskFile(std::string path) : path_(std::move(path)) {}
  ~DiskFile() override { Close(); }

  absl::StatusOr<std::string> Read() override {
    if (!support::FileExists(path_)) return std::string();
    return support::ReadFile(path_, kMaxFileBytes);
  }

  absl::Status WriteAt(int64_t size, std::string_view bytes, bool durable) override {
    TW_TRY(GoTo(size));
    support::HitFailpoint(support::Failpoint::agent_spool_begun);
    at_ = -1;  // unknown until all went well
    for (std::string_view rest = bytes; !rest.empty();) {
      const ssize_t written = write(fd_, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return support::ErrnoError(errno, "spool.write.failed", path_);
      rest.remove_prefix(static_cast<size_t>(written));
    }
    support::HitFailpoint(support::Failpoint::agent_spool_written);
    if (durable && fdatasync(fd_) != 0) {
      return support::ErrnoError(errno, "spool.sync.failed", path_);
    }
    support::HitFailpoint(support::Failpoint::agent_spool_synced);
    at_ = size + static_cast<int64_t>(bytes.size());
    return absl::OkStatus();
  }

  absl::Status Replace(std::string_view content) override {
    Close();
    return support::WriteFileAtomic(path_, content);
  }

 private:
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
    at_ = -1;
  }

  // The file open, `size` bytes long, to be written at its end.
  absl::Status GoTo(int64_t size) {
    if (at_ == size) return absl::OkStatus();
    if (fd_ < 0) fd_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd_ < 0 || ftruncate(fd_, size) != 0 || lseek(fd_, size, SEEK_SET) != size) {
      return support::ErrnoError(errno, "spool.open.failed", path_);
    }
    at_ = size;
    return absl::OkStatus();
  }

  const std::string path_;
  int fd_ = -1;
  int64_t at_ = -1;  // length of the file when it is known
};

}  // namespace

bool MustBeSynced(Record::Kind kind) {
  return kind != Record::Kind::kGrant && kind != Record::Kind::kAcked;
}

std::string EncodeRecord(const Record& record) {
  std::string payload(1, static_cast<char>(record.kind));
  if (IsGrant(record.kind)) {
    record.grant.AppendToString(&payload);
  } else {
    record.result.AppendToString(&payload);
  }
  TW_CHECK(payload.size() <= std::numeric_limits<uint32_t>::max()) << payload.size();
  std::string bytes;
  PutNumber(payload.size(), 4, &bytes);
  PutNumber(support::StableHash64(payload), 8, &bytes);
  return bytes + payload;
}

absl::StatusOr<std::unique_ptr<Spool>> Spool::Open(const std::string& path, Ledger* ledger) {
  return Open(std::make_unique<DiskFile>(path), path, ledger);
}

absl::StatusOr<std::unique_ptr<Spool>> Spool::Open(std::unique_ptr<SpoolFile> file,
                                                   const std::string& path, Ledger* ledger) {
  auto spool = std::unique_ptr<Spool>(new Spool(std::move(file)));
  TW_ASSIGN(std::string content, spool->file_->Read());
  // Created empty and then filled: a crash between the two leaves a part of the magic bytes.
  if (content.size() < kMagic.size() && kMagic.substr(0, content.size()) == content) {
    TW_TRY(spool->file_->Replace(kMagic));
    content = kMagic;
  }
  std::string_view rest = content;
  if (rest.substr(0, kMagic.size()) != kMagic) {
    return support::DataLoss("spool.file.damaged", "not a spool: " + path);
  }
  rest.remove_prefix(kMagic.size());
  while (const auto payload = FrontPayload(rest)) {
    Record record;
    if (!Decode(*payload, &record)) {
      return support::DataLoss("spool.file.damaged", "a record of an unknown kind: " + path);
    }
    ledger->Apply(record);
    rest.remove_prefix(kHeadBytes + payload->size());
  }
  if (AnyPromisedRecordIn(rest)) {
    return support::DataLoss(
        "spool.file.damaged",
        support::StrCat("records follow bytes that are none, at ", content.size() - rest.size(),
                        " of ", path, "; move the file away to start without it"));
  }
  spool->dropped_bytes_ = static_cast<int64_t>(rest.size());
  spool->bytes_ = static_cast<int64_t>(content.size() - rest.size());
  support::HitFailpoint(support::Failpoint::agent_spool_opened);
  return spool;
}

absl::Status Spool::Append(const Record& record, bool durable) {
  const std::string bytes = EncodeRecord(record);
  TW_TRY(file_->WriteAt(bytes_, bytes, durable));
  bytes_ += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

bool Spool::WantsCompaction() const {
  return bytes_ > kWorthCompacting && bytes_ > 4 * compact_bytes_;
}

absl::Status Spool::Rewrite(const std::vector<Record>& records) {
  std::string content(kMagic);
  for (const Record& record : records) content += EncodeRecord(record);
  TW_TRY(file_->Replace(content));
  bytes_ = static_cast<int64_t>(content.size());
  compact_bytes_ = bytes_;
  return absl::OkStatus();
}

}  // namespace tilewright::device_agent
