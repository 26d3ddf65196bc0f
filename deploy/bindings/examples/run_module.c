/* Runs a module once: raw inputs from standard input, raw outputs to standard output.
 *
 *   cc run_module.c $(pkg-config --cflags --libs tilewright) -o run_module
 *   ./run_module model.tw < input.raw > output.raw
 *
 * Inputs and outputs are compact row-major tensors, one after another, in the module's order. */
#include <stdio.h>
#include <stdlib.h>
#include <tilewright.h>

static void Check(TwStatus status) {
  if (status == TW_STATUS_OK) return;
  fprintf(stderr, "run_module: %s\n", tw_last_error());
  exit(1);
}

static void ReadInputs(const TwModule* module, TwSession* session) {
  for (size_t i = 0; i < tw_module_num_inputs(module); ++i) {
    TwTensorInfo info;
    Check(tw_module_input(module, i, &info));
    void* data = malloc(info.bytes > 0 ? info.bytes : 1);
    if (data == NULL || fread(data, 1, info.bytes, stdin) != info.bytes) {
      fprintf(stderr, "run_module: expected %zu bytes of input %s\n", info.bytes, info.name);
      exit(1);
    }
    Check(tw_session_set_input_bytes(session, i, data, info.bytes));
    free(data);
  }
}

static void WriteOutputs(const TwModule* module, TwSession* session) {
  for (size_t i = 0; i < tw_module_num_outputs(module); ++i) {
    TwTensorInfo info;
    DLTensor view; /* no copy: valid until the next run */
    Check(tw_module_output(module, i, &info));
    Check(tw_session_get_output(session, i, &view));
    if (fwrite(view.data, 1, info.bytes, stdout) != info.bytes) exit(1);
  }
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: run_module MODULE.tw < input.raw > output.raw\n");
    return 2;
  }
  TwModule* module = NULL;
  TwSession* session = NULL;
  Check(tw_module_open(argv[1], &module));
  Check(tw_session_create(module, 0, &session)); /* 0: all cores that this process may use */
  ReadInputs(module, session);
  Check(tw_session_run(session));
  WriteOutputs(module, session);
  tw_session_destroy(session);
  tw_module_close(module);
  return fflush(stdout) == 0 ? 0 : 1;
}
