// Part of every program of the build type Tsan, and of no other. The system's gRPC and Abseil are
// not compiled with the thread sanitizer, so it cannot see how they hand work from thread to
// thread: Abseil's mutex waits by a system call of its own, completion queues are lock-free. This
// file defines the entry points of both again; the dynamic linker takes these for the libraries,
// too. Each calls the library's own and tells the sanitizer what the entry point's contract says:
// what came before an unlock comes before the next lock, what came before the start of an operation
// comes before its completion. What those libraries do among themselves the sanitizer leaves out
// (ignore_noninstrumented_modules); the program's own code it checks like any other.
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>

#include "absl/base/config.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

// The last thread to leave a unary call has another one destroy gRPC's own reactor of it; they meet
// in an executor inside the library, behind no entry point. Nothing of ours is in that object.
extern "C" const char* __tsan_default_suppressions() {
  return "race:grpc::internal::FinishOnlyReactor\n";
}

// Compiled in: children of daemons do not get the environment of the test.
extern "C" const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1:halt_on_error=1:second_deadlock_stack=1";
}

namespace {

// The next definition of `name` after this program's own.
template <typename Function>
Function* Next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    std::fprintf(stderr, "tsan_interposers: no library defines %s\n", name);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

#define TW_ABSL_SYMBOL(rest) "_ZN4absl7debian3" rest
#if !ABSL_OPTION_USE_INLINE_NAMESPACE
#error "expected the Abseil of Debian, in the inline namespace debian3"
#endif

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto next = Next<void(Mutex*)>(TW_ABSL_SYMBOL("5Mutex4LockEv"));
  next(this);
  __tsan_acquire(this);
}

bool Mutex::TryLock() {
  static const auto next = Next<bool(Mutex*)>(TW_ABSL_SYMBOL("5Mutex7TryLockEv"));
  const bool locked = next(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::Unlock() {
  static const auto next = Next<void(Mutex*)>(TW_ABSL_SYMBOL("5Mutex6UnlockEv"));
  __tsan_release(this);
  next(this);
}

void CondVar::Wait(Mutex* mutex) {
  static const auto next =
      Next<void(CondVar*, Mutex*)>(TW_ABSL_SYMBOL("7CondVar4WaitEPNS0_5MutexE"));
  __tsan_release(mutex);
  next(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto next = Next<bool(CondVar*, Mutex*, Duration)>(
      TW_ABSL_SYMBOL("7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE"));
  __tsan_release(mutex);
  const bool late = next(this, mutex, timeout);
  __tsan_acquire(mutex);
  return late;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto next = Next<bool(CondVar*, Mutex*, Time)>(
      TW_ABSL_SYMBOL("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE"));
  __tsan_release(mutex);
  const bool late = next(this, mutex, deadline);
  __tsan_acquire(mutex);
  return late;
}

ABSL_NAMESPACE_END
}  // namespace absl

extern "C" {

// One thread of gRPC makes the object of a callback call, another runs it; they meet in a queue
// inside the library, behind no entry point. This constructor is inline and would be compiled into
// the program: what it writes would seem to race with the interceptors that read it.
void MakeInterceptorBatch(void* self) __asm__("_ZN4grpc8internal27InterceptorBatchMethodsImplC1Ev");
void MakeInterceptorBatch(void* self) {
  static const auto next = Next<void(void*)>("_ZN4grpc8internal27InterceptorBatchMethodsImplC1Ev");
  next(self);
}

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count, void* tag,
                                      void* reserved) {
  static const auto next = Next<decltype(grpc_call_start_batch)>("grpc_call_start_batch");
  __tsan_release(tag);
  return next(call, ops, count, tag, reserved);
}

grpc_call_error grpc_server_request_call(grpc_server* server, grpc_call** call,
                                         grpc_call_details* details, grpc_metadata_array* metadata,
                                         grpc_completion_queue* bound, grpc_completion_queue* told,
                                         void* tag) {
  static const auto next = Next<decltype(grpc_server_request_call)>("grpc_server_request_call");
  __tsan_release(tag);
  return next(server, call, details, metadata, bound, told, tag);
}

grpc_call_error grpc_server_request_registered_call(grpc_server* server, void* method,
                                                    grpc_call** call, gpr_timespec* deadline,
                                                    grpc_metadata_array* metadata,
                                                    grpc_byte_buffer** payload,
                                                    grpc_completion_queue* bound,
                                                    grpc_completion_queue* told, void* tag) {
  static const auto next =
      Next<decltype(grpc_server_request_registered_call)>("grpc_server_request_registered_call");
  __tsan_release(tag);
  return next(server, method, call, deadline, metadata, payload, bound, told, tag);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline,
                                      void* reserved) {
  static const auto next = Next<decltype(grpc_completion_queue_next)>("grpc_completion_queue_next");
  const grpc_event event = next(queue, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static const auto next =
      Next<decltype(grpc_completion_queue_pluck)>("grpc_completion_queue_pluck");
  const grpc_event event = next(queue, tag, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

}  // extern "C"
