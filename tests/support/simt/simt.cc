#include "tests/support/simt/simt.h"

#include <algorithm>
#include <utility>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::simt {
namespace {

using support::StrCat;

constexpr size_t kMostArguments = 24;
constexpr uint32_t kMeeting = 4;  // warps

// Integers and pointers are passed alike, and a callee ignores arguments that it does not declare:
// so the calling conventions of x86-64 and AArch64 say.
template <size_t... I>
void Call(void* entry, const std::array<uint64_t, kMostArguments>& a, std::index_sequence<I...>) {
  using Entry = void (*)(std::tuple_element_t<I, std::array<uint64_t, kMostArguments>>...);
  reinterpret_cast<Entry>(entry)(a[I]...);
}

Emulator* Of(SimtHooks* hooks) { return static_cast<Emulator*>(hooks->emulator); }

}  // namespace

Emulator::Emulator(Limits limits) : limits_(limits) {
  hooks_.emulator = this;
  hooks_.access = OnAccess;
  hooks_.barrier = OnBarrier;
  hooks_.shared = OnShared;
  hooks_.exchange = OnExchange;
  hooks_.gather = OnGather;
  hooks_.shared_address = OnSharedAddress;
  hooks_.shared_at = OnSharedAt;
  hooks_.order_writes = OnOrderWrites;
  hooks_.meet = OnMeet;
  hooks_.fail = OnFail;
}

absl::Status Emulator::CheckLaunch(const LaunchRequest& request) const {
  int64_t threads = 1;
  for (size_t a = 0; a < 3; ++a) {
    if (request.groups[a] < 1 || request.threads[a] < 1)
      return support::InvalidArgument("simt.launch.limits", "expected groups and threads");
    threads *= request.threads[a];
  }
  if (threads > limits_.group_threads) {
    return support::InvalidArgument(
        "simt.launch.limits",
        StrCat("expected at most ", limits_.group_threads, " threads in a group, found ", threads));
  }
  if (request.kernel.entry == nullptr ||
      request.arguments.size() + request.maps.size() > kMostArguments) {
    return support::InvalidArgument("simt.launch.limits",
                                    StrCat("expected a kernel and at most ", kMostArguments,
                                           " arguments, found ", request.arguments.size()));
  }
  return absl::OkStatus();
}

absl::Status Emulator::Launch(const LaunchRequest& request) {
  TW_TRY(CheckLaunch(request));
  request.kernel.bind(&hooks_);
  fault_ = {};
  counts_ = request.count_traffic;
  hooks_.warp = request.kernel.warp;
  actor_.first_group = actor_.group + 1;
  for (size_t a = 0; a < 3; ++a) {
    hooks_.groups[a] = static_cast<unsigned>(request.groups[a]);
    hooks_.threads[a] = static_cast<unsigned>(request.threads[a]);
  }
  const int64_t groups = request.groups[0] * request.groups[1] * request.groups[2];
  const int64_t runs = request.most_groups > 0 ? std::min(request.most_groups, groups) : groups;
  for (int64_t i = 0; i < runs && !failed(); ++i) {
    const int64_t group = i * groups / runs;
    hooks_.group[0] = static_cast<unsigned>(group % request.groups[0]);
    hooks_.group[1] = static_cast<unsigned>(group / request.groups[0] % request.groups[1]);
    hooks_.group[2] = static_cast<unsigned>(group / request.groups[0] / request.groups[1]);
    RunGroup(request);
  }
  if (counts_) traffic_ = counter_.Take();
  if (!failed()) return absl::OkStatus();
  return support::FailedPrecondition(
      fault_.kind, StrCat(fault_.detail, ", in group ", hooks_.group[0], " ", hooks_.group[1], " ",
                          hooks_.group[2]));
}

void Emulator::RunGroup(const LaunchRequest& request) {
  const auto count =
      static_cast<uint32_t>(request.threads[0] * request.threads[1] * request.threads[2]);
  std::array<uint64_t, kMostArguments> arguments{};
  auto next = std::copy(request.arguments.begin(), request.arguments.end(), arguments.begin());
  for (const SimtTensorMap& map : request.maps) *next++ = reinterpret_cast<uint64_t>(&map);
  threads_.assign(count, {});
  fibers_.Start(count, [entry = request.kernel.entry, arguments](size_t) {
    Call(entry, arguments, std::make_index_sequence<kMostArguments>());
  });
  memory_.BeginGroup();
  hooks_.run = ++actor_.group;
  ++actor_.shared_interval;
  ++actor_.global_interval;
  const auto ended = [&](uint32_t t) { return fibers_.Ended(t); };
  bool all_ended = false;
  while (!all_ended && !failed()) {
    const uint32_t four = kMeeting * hooks_.warp;
    for (uint32_t first = 0; first < count && !failed(); first += four)
      RunFourWarps(first, std::min(first + four, count));
    if (failed()) break;
    all_ended = true;
    for (uint32_t t = 0; t < count; ++t) all_ended = all_ended && ended(t);
    FinishInterval();
  }
  const int64_t most =
      request.dynamic_shared_bytes > 0 ? request.dynamic_shared_bytes : limits_.shared_bytes;
  if (memory_.shared_bytes() > static_cast<size_t>(most)) {
    Fail({"simt.launch.limits", StrCat("expected at most ", most, " bytes of shared memory, found ",
                                       memory_.shared_bytes())});
  }
}

void Emulator::RunFourWarps(uint32_t first, uint32_t end) {
  do {
    for (uint32_t warp = first; warp < end && !failed(); warp += hooks_.warp)
      RunWarp(warp, std::min(warp + hooks_.warp, end));
  } while (!failed() && FinishMeeting(first, end));
}

// Lets threads go on that wait for all of their four warps. Returns whether there were any.
bool Emulator::FinishMeeting(uint32_t first, uint32_t end) {
  const Thread* asked = nullptr;
  uint32_t here = 0;
  for (uint32_t t = first; t < end; ++t) {
    if (threads_[t].wait == Wait::kFourWarps) asked = &threads_[t];
  }
  if (asked == nullptr) return false;
  for (uint32_t t = first; t < end; ++t)
    here += threads_[t].wait == Wait::kFourWarps && threads_[t].site == asked->site;
  if (here != kMeeting * hooks_.warp) {
    Fail({"simt.warp.divergent",
          StrCat("expected all threads of four warps at one product, found ", here)});
    return false;
  }
  for (uint32_t t = first; t < end; ++t) threads_[t].wait = Wait::kNone;
  return true;
}

// Runs the threads of a warp to a barrier or their end.
void Emulator::RunWarp(uint32_t first, uint32_t end) {
  do {
    for (uint32_t t = first; t < end && !failed(); ++t) {
      if (!fibers_.Ended(t) && threads_[t].wait == Wait::kNone) Resume(t);
    }
  } while (!failed() && FinishExchange(first, end));
}

void Emulator::Resume(uint32_t thread) {
  actor_.thread = thread;
  hooks_.thread[0] = thread % hooks_.threads[0];
  hooks_.thread[1] = thread / hooks_.threads[0] % hooks_.threads[1];
  hooks_.thread[2] = thread / hooks_.threads[0] / hooks_.threads[1];
  fibers_.Resume(thread);
}

// Gives the threads that wait for their warp what they asked for. Returns whether there were any.
bool Emulator::FinishExchange(uint32_t first, uint32_t end) {
  const Thread* asked = nullptr;
  uint64_t waiting = 0;
  for (uint32_t t = first; t < end; ++t) {
    if (threads_[t].wait != Wait::kWarp) continue;
    asked = asked == nullptr ? &threads_[t] : asked;
    waiting |= uint64_t{1} << (t - first);
  }
  if (asked == nullptr) return false;
  for (uint32_t t = first; t < end; ++t) {
    const Thread& thread = threads_[t];
    const bool named = (asked->mask >> (t - first) & 1) != 0;
    const bool here = (waiting >> (t - first) & 1) != 0;
    if (named == here && (!here || (thread.site == asked->site && thread.mask == asked->mask &&
                                    thread.bytes == asked->bytes)))
      continue;
    Fail({"simt.warp.divergent",
          StrCat("expected the threads of the mask at one shuffle, found that thread ", t,
                 here ? " is at another" : " is not there")});
    return false;
  }
  if (asked->bytes > 0 && !GatherFrom(first, end)) return false;
  for (uint32_t t = first; t < end; ++t) {
    Thread& thread = threads_[t];
    if (thread.wait != Wait::kWarp) continue;
    const bool there = thread.from < end - first && (waiting >> thread.from & 1) != 0;
    thread.result = there ? threads_[first + thread.from].value : thread.value;
  }
  for (uint32_t t = first; t < end; ++t) {
    if (threads_[t].wait == Wait::kWarp) threads_[t].wait = Wait::kNone;
  }
  return true;
}

// Puts together what the threads of a whole warp have given.
bool Emulator::GatherFrom(uint32_t first, uint32_t end) {
  if (end - first != hooks_.warp) {
    Fail({"simt.warp.divergent",
          StrCat("expected a warp of ", hooks_.warp, " threads, found ", end - first)});
    return false;
  }
  gathered_.clear();
  for (uint32_t t = first; t < end; ++t) {
    const auto* own = static_cast<const char*>(threads_[t].own);
    gathered_.insert(gathered_.end(), own, own + threads_[t].bytes);
  }
  return true;
}

// All threads wait at a barrier, or have ended.
void Emulator::FinishInterval() {
  if (counts_) counter_.EndInterval();
  const Thread* waits = nullptr;
  for (const Thread& t : threads_) {
    if (t.wait == Wait::kBarrier) waits = &t;
  }
  if (waits == nullptr) return;
  size_t here = 0;
  for (const Thread& t : threads_) here += t.wait == Wait::kBarrier && t.site == waits->site;
  if (here != threads_.size()) {
    return Fail({"simt.barrier.divergent", StrCat("expected all ", threads_.size(),
                                                  " threads at one barrier, found ", here)});
  }
  ++actor_.shared_interval;
  if (waits->global) ++actor_.global_interval;
  for (Thread& t : threads_) t.wait = Wait::kNone;
}

void Emulator::Fail(Fault fault) {
  if (!failed()) fault_ = std::move(fault);
}

void Emulator::FailThread(Fault fault) {
  Fail(std::move(fault));
  fibers_.Yield();
}

void Emulator::OnAccess(SimtHooks* hooks, const void* address, unsigned long bytes,
                        unsigned long align, int kind, const void* site) {
  Emulator* self = Of(hooks);
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (self->fibers_.OnStack(self->actor_.thread, at)) return;
  const Access access{at, bytes, align, kind == SIMT_WRITE, kind == SIMT_UNIT_READ, site};
  Fault fault = self->memory_.Check(access, self->actor_);
  if (!fault.none()) return self->FailThread(std::move(fault));
  if (!self->counts_) return;
  self->counter_.Add(access, self->memory_.IsShared(at), self->memory_.NameOf(at),
                     self->actor_.thread);
}

void Emulator::OnBarrier(SimtHooks* hooks, int global, unsigned long site) {
  Emulator* self = Of(hooks);
  Thread& thread = self->threads_[self->actor_.thread];
  thread.wait = Wait::kBarrier;
  thread.site = site;
  thread.global = global != 0;
  self->fibers_.Yield();
}

void* Emulator::OnShared(SimtHooks* hooks, const char* name, unsigned long bytes,
                         unsigned long element, unsigned long align) {
  return Of(hooks)->memory_.Shared(name, bytes, element, align);
}

unsigned Emulator::OnSharedAddress(SimtHooks* hooks, const void* element) {
  return Of(hooks)->memory_.SharedAddress(element);
}

const void* Emulator::OnSharedAt(SimtHooks* hooks, unsigned address) {
  return Of(hooks)->memory_.SharedAt(address);
}

void Emulator::OnOrderWrites(SimtHooks* hooks) {
  Of(hooks)->memory_.OrderWrites(Of(hooks)->actor_.thread);
}

void Emulator::OnMeet(SimtHooks* hooks, unsigned long site) {
  Emulator* self = Of(hooks);
  Thread& thread = self->threads_[self->actor_.thread];
  thread.wait = Wait::kFourWarps;
  thread.site = site;
  self->fibers_.Yield();
}

void Emulator::OnFail(SimtHooks* hooks, const char* slug, const char* detail) {
  Emulator* self = Of(hooks);
  self->FailThread({slug, StrCat(detail, ", by thread ", self->actor_.thread)});
}

unsigned long Emulator::OnExchange(SimtHooks* hooks, unsigned long mask, unsigned long value,
                                   unsigned from, unsigned long site) {
  Emulator* self = Of(hooks);
  Thread& thread = self->threads_[self->actor_.thread];
  thread.wait = Wait::kWarp;
  thread.site = site;
  thread.mask = mask;
  thread.from = from;
  thread.value = value;
  thread.bytes = 0;
  self->fibers_.Yield();
  return thread.result;
}

const void* Emulator::OnGather(SimtHooks* hooks, const void* own, unsigned long bytes,
                               unsigned long site) {
  Emulator* self = Of(hooks);
  Thread& thread = self->threads_[self->actor_.thread];
  thread.wait = Wait::kWarp;
  thread.site = site;
  thread.mask = ~uint64_t{0};
  thread.own = own;
  thread.bytes = bytes;
  self->fibers_.Yield();
  return self->gathered_.data();
}

}  // namespace tilewright::simt
