#include "tracker/item_unpacker.h"

#include <google/protobuf/arena.h>

#include <utility>

#include "deploy/support/strings.h"

namespace tilewright::tracker {
namespace {

// Large enough that a thread for each costs nothing; whoever has fewer rows needs none.
constexpr size_t kBatchRows = 8192;
constexpr size_t kParseBytes = size_t{64} << 10;

}  // namespace

ItemUnpacker::~ItemUnpacker() {
  if (under_way_.valid()) under_way_.wait();
}

absl::Status ItemUnpacker::Add(std::string_view name, std::string_view spec) {
  batch_.bytes.append(name).append(spec);
  batch_.lengths.push_back(static_cast<uint32_t>(name.size()));
  batch_.lengths.push_back(static_cast<uint32_t>(spec.size()));
  return batch_.lengths.size() < 2 * kBatchRows ? absl::OkStatus() : Flush();
}

absl::Status ItemUnpacker::Flush() {
  TW_TRY(Wait());
  Batch next;
  next.first_row = batch_.first_row + batch_.lengths.size() / 2;
  next.bytes.reserve(batch_.bytes.size());
  std::swap(next, batch_);
  under_way_ =
      std::async(std::launch::async, [this, batch = std::move(next)] { return Unpack(batch); });
  return absl::OkStatus();
}

absl::Status ItemUnpacker::Wait() {
  return under_way_.valid() ? under_way_.get() : absl::OkStatus();
}

absl::Status ItemUnpacker::Finish() {
  TW_TRY(Wait());
  return Unpack(std::exchange(batch_, Batch()));
}

absl::Status ItemUnpacker::Unpack(const Batch& batch) {
  // A parsed message lives only until the next one: its memory is used again.
  std::vector<char> block(kParseBytes);
  google::protobuf::ArenaOptions options;
  options.initial_block = block.data();
  options.initial_block_size = block.size();
  google::protobuf::Arena arena(options);
  std::string_view left = batch.bytes;
  for (size_t i = 0; i + 1 < batch.lengths.size(); i += 2) {
    const std::string_view name = left.substr(0, batch.lengths[i]);
    const std::string_view spec = left.substr(name.size(), batch.lengths[i + 1]);
    left.remove_prefix(name.size() + spec.size());
    arena.Reset();
    auto& message = *google::protobuf::Arena::CreateMessage<v1::WorkItem>(&arena);
    if (!message.ParseFromArray(spec.data(), static_cast<int>(spec.size())) ||
        message.name() != name) {
      return support::DataLoss(
          "tracker.store.damaged",
          support::StrCat("work item ", support::Quote(std::string(name)), " cannot be read"));
    }
    (*rows_)[batch.first_row + i / 2].item = StoredItem(message, std::string(spec), &last_);
  }
  return absl::OkStatus();
}

}  // namespace tilewright::tracker
