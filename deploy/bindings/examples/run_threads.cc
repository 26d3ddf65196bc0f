// Four threads share one session: tw_session_call makes whole calls, one after another. Raw inputs
// from standard input, raw outputs to standard output, as run_module.c. The threads compute the
// same outputs, so the program fails if calls mix.
#include <tilewright.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr int kThreads = 4;

void Check(TwStatus status) {
  if (status == TW_STATUS_OK) return;
  std::fprintf(stderr, "run_threads: %s\n", tw_last_error());
  std::exit(1);
}

struct CloseModule {
  void operator()(TwModule* module) const { tw_module_close(module); }
};
struct DestroySession {
  void operator()(TwSession* session) const { tw_session_destroy(session); }
};

// Memory for some of a module's tensors, and the pointers that tw_session_call takes.
struct Tensors {
  std::vector<std::vector<char>> data;
  std::vector<DLTensor> tensors;
  std::vector<const DLTensor*> pointers;
};

template <typename Describe>
std::unique_ptr<Tensors> Allocate(const TwModule* module, size_t count, Describe describe) {
  auto list = std::make_unique<Tensors>();
  for (size_t i = 0; i < count; ++i) {
    TwTensorInfo info{};
    Check(describe(module, i, &info));
    list->data.emplace_back(info.bytes);
    DLTensor& tensor = list->tensors.emplace_back();
    tensor.data = list->data.back().data();
    tensor.device = {kDLCPU, 0};
    tensor.dtype = info.dtype;
    tensor.ndim = info.ndim;
    tensor.shape = const_cast<int64_t*>(info.shape);
  }
  for (const DLTensor& tensor : list->tensors) list->pointers.push_back(&tensor);
  return list;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: run_threads MODULE.tw < input.raw > output.raw\n");
    return 2;
  }
  TwModule* opened = nullptr;
  Check(tw_module_open(argv[1], &opened));
  const std::unique_ptr<TwModule, CloseModule> module(opened);
  TwSession* created = nullptr;
  Check(tw_session_create(module.get(), 0, &created));
  const std::unique_ptr<TwSession, DestroySession> session(created);

  const auto inputs = Allocate(module.get(), tw_module_num_inputs(module.get()), tw_module_input);
  for (std::vector<char>& data : inputs->data) {
    if (std::fread(data.data(), 1, data.size(), stdin) != data.size()) return 1;
  }
  std::vector<std::unique_ptr<Tensors>> results;
  for (int i = 0; i < kThreads; ++i) {
    results.push_back(
        Allocate(module.get(), tw_module_num_outputs(module.get()), tw_module_output));
  }
  std::vector<std::thread> threads;
  for (const std::unique_ptr<Tensors>& outputs : results) {
    threads.emplace_back([&session, &inputs, result = outputs.get()] {
      Check(tw_session_call(session.get(), inputs->pointers.data(), inputs->pointers.size(),
                            result->pointers.data(), result->pointers.size()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::unique_ptr<Tensors>& outputs : results) {
    if (outputs->data != results[0]->data) return 1;
  }
  for (const std::vector<char>& data : results[0]->data) {
    if (std::fwrite(data.data(), 1, data.size(), stdout) != data.size()) return 1;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
