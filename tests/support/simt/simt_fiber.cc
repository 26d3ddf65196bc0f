#include "tests/support/simt/simt_fiber.h"

#include <sys/mman.h>

#include <utility>

#include "deploy/support/status.h"

#ifndef __x86_64__
#include <ucontext.h>

#include <memory>
#endif

namespace tilewright::simt {
namespace {

// Whose body Enter runs: a new stack begins without arguments.
thread_local Fibers* entered = nullptr;

char* NewStack(size_t bytes) {
  void* stack = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  TW_CHECK(stack != MAP_FAILED) << bytes;
  return static_cast<char*>(stack);
}

}  // namespace

// A context is a stack pointer above the registers that a call has to keep: a switch costs a few
// nanoseconds, where swapcontext costs two system calls.
#ifdef __x86_64__
extern "C" void simt_switch(void** save, void* load);
asm(R"(
.text
.globl simt_switch
.type simt_switch, @function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch, .-simt_switch
)");

namespace {
constexpr size_t kSavedRegisters = 6;

void* NewContext(char* stack, size_t bytes, void (*entry)()) {
  // The entry finds its stack as after a call: 8 bytes below a multiple of 16.
  auto** top = reinterpret_cast<void**>(stack + bytes - 72);
  *top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (size_t i = 0; i < kSavedRegisters; ++i) *--top = nullptr;
  return top;
}
void Switch(void** from, void* to) { simt_switch(from, to); }
void Forget(void*) {}
}  // namespace
#else
namespace {
void* NewContext(char* stack, size_t bytes, void (*entry)()) {
  auto context = std::make_unique<ucontext_t>();
  TW_CHECK(getcontext(context.get()) == 0);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = bytes;
  context->uc_link = nullptr;
  makecontext(context.get(), entry, 0);
  return context.release();
}
void Switch(void** from, void* to) {
  if (*from == nullptr) *from = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(*from), static_cast<ucontext_t*>(to));
}
void Forget(void* context) { delete static_cast<ucontext_t*>(context); }
}  // namespace
#endif

Fibers::~Fibers() {
  for (void* context : contexts_) Forget(context);
  Forget(scheduler_);
  for (char* stack : stacks_) munmap(stack, kStackBytes);
}

void Fibers::Start(size_t count, std::function<void(size_t)> body) {
  body_ = std::move(body);
  while (stacks_.size() < count) stacks_.push_back(NewStack(kStackBytes));
  for (void* context : contexts_) Forget(context);
  contexts_.clear();
  for (size_t i = 0; i < count; ++i)
    contexts_.push_back(NewContext(stacks_[i], kStackBytes, &Fibers::Enter));
  ended_.assign(count, false);
}

void Fibers::Enter() {
  Fibers* self = entered;
  const size_t index = self->running_;
  self->body_(index);
  self->ended_[index] = true;
  self->Yield();
}

void Fibers::Resume(size_t index) {
  TW_CHECK(!ended_[index]) << index;
  entered = this;
  running_ = index;
  Switch(&scheduler_, contexts_[index]);
}

void Fibers::Yield() { Switch(&contexts_[running_], scheduler_); }

}  // namespace tilewright::simt
