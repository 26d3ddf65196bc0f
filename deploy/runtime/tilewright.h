/* C interface of libtilewright_runtime.so: open a module, make a session, run it. For C and C++.
 * Plain C and stable: later versions only add functions and codes.
 *
 *   tw_module_open("model.tw", &module);
 *   tw_session_create(module, 2, &session);
 *   tw_session_call(session, inputs, 1, outputs, 1);
 *
 * Trust: running a module runs machine code. Open only modules that you trust.
 *
 * Errors: a function that can fail returns a TwStatus. tw_last_error() says why. A call that is
 * refused has changed nothing. If a kernel fails (INTERNAL), the outputs are undefined.
 *
 * Ownership: the caller closes what tw_module_open and tw_session_create gave, with
 * tw_module_close and tw_session_destroy. A session keeps its module alive. Names, shapes and texts
 * belong to the object that they describe and live as long as it does.
 *
 * Threads:
 * - A module may be used by any number of threads at the same time. tw_last_error() is per thread.
 * - tw_session_call may be called from any number of threads. The calls on one session run one
 *   after another, each with its own inputs and outputs.
 * - tw_session_set_input, _set_input_bytes, _set_input_shape, _run, _run_profiled, _get_output and _reset_state
 *   work on state that the session keeps between them. One thread at a time must do the whole
 *   sequence. If one of them overlaps with another call on the session, it does nothing and returns
 *   ABORTED (`runtime.session.busy`).
 * - To run calls at the same time, make a session for each thread. Sessions of one module share its
 *   code and constants. Each has its own threads and buffers.
 * - tw_session_destroy waits for the call that runs. Calls that still wait for their turn return
 *   ABORTED (`runtime.session.closed`). No call may begin after tw_session_destroy began.
 * - After fork(), the child may use modules. It makes its own sessions: one of several threads that
 *   it inherited returns FAILED_PRECONDITION (`runtime.session.forked`). */
#ifndef DEPLOY_RUNTIME_TILEWRIGHT_H_
#define DEPLOY_RUNTIME_TILEWRIGHT_H_

#include <stddef.h>
#include <stdint.h>

#include "dlpack_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TW_API __attribute__((visibility("default")))
#else
#define TW_API
#endif

/* The numbers are those of gRPC's status codes. */
typedef enum {
  TW_STATUS_OK = 0,
  TW_STATUS_UNKNOWN = 2,
  TW_STATUS_INVALID_ARGUMENT = 3,
  TW_STATUS_NOT_FOUND = 5,
  TW_STATUS_PERMISSION_DENIED = 7,
  TW_STATUS_RESOURCE_EXHAUSTED = 8,
  TW_STATUS_FAILED_PRECONDITION = 9, /* this machine or process cannot run the module */
  TW_STATUS_ABORTED = 10,            /* another thread uses the session */
  TW_STATUS_UNIMPLEMENTED = 12,
  TW_STATUS_INTERNAL = 13, /* a kernel failed */
  TW_STATUS_UNAVAILABLE = 14,
  TW_STATUS_DATA_LOSS = 15 /* the module is damaged */
} TwStatus;

typedef struct TwModule TwModule;
typedef struct TwSession TwSession;

/* Returns why the last call on this thread failed, as "slug: detail"; "" if none failed. The text
 * is valid until the next failure on this thread. */
TW_API const char* tw_last_error(void);

/* Return the version of the library ("MAJOR.MINOR.PATCH"), and of the ABI that it runs code objects
 * of. */
TW_API const char* tw_runtime_version(void);
TW_API uint32_t tw_abi_version(void);

/* --- modules ------------------------------------------------------------------------------------
 */
/* Opens a module and loads its code. NOT_FOUND if there is no such file, DATA_LOSS if it is
 * damaged, FAILED_PRECONDITION if this CPU lacks a feature that the module needs. */
TW_API TwStatus tw_module_open(const char* path, TwModule** out);
/* Opens a module that is in memory. Copies the bytes. */
TW_API TwStatus tw_module_open_memory(const void* bytes, size_t size, TwModule** out);
/* Opens a module that calls functions of shared libraries (external_kernel.h). `libraries` are the
 * paths of those that it may load; a module that asks for another one is refused
 * (FAILED_PRECONDITION), as tw_module_open refuses every such module. */
TW_API TwStatus tw_module_open_with_libraries(const char* path, const char* const* libraries,
                                              size_t num_libraries, TwModule** out);
/* NULL is allowed. */
TW_API void tw_module_close(TwModule* module);

TW_API const char* tw_module_name(const TwModule* module);
TW_API const char* tw_module_target(const TwModule* module);
/* Returns the manifest as canonical JSON. */
TW_API const char* tw_module_manifest(const TwModule* module);

/* One input or output of the function "main". */
typedef struct {
  const char* name;
  DLDataType dtype;
  const char* dtype_name; /* "float32" */
  int32_t ndim;
  const int64_t* shape; /* -1 for an open dimension (tw_module_input_dim) */
  size_t bytes;         /* of the compact row-major contents; at the largest sizes if any is open */
} TwTensorInfo;

TW_API size_t tw_module_num_inputs(const TwModule* module);
TW_API size_t tw_module_num_outputs(const TwModule* module);
TW_API TwStatus tw_module_input(const TwModule* module, size_t index, TwTensorInfo* out);
TW_API TwStatus tw_module_output(const TwModule* module, size_t index, TwTensorInfo* out);
/* Find the index of an input or output by its name. The error text of NOT_FOUND lists the names. */
TW_API TwStatus tw_module_find_input(const TwModule* module, const char* name, size_t* index);
TW_API TwStatus tw_module_find_output(const TwModule* module, const char* name, size_t* index);

/* --- open sizes: modules that take inputs of several shapes ----------------------------------------
 */
/* A variable that dimensions depend on. A call binds it from the shapes of its inputs. */
typedef struct {
  const char* name;
  int64_t min; /* the sizes that the module was compiled for */
  int64_t max;
} TwSizeVar;

/* 0 if all sizes of the module are fixed. */
TW_API size_t tw_module_num_size_vars(const TwModule* module);
TW_API TwStatus tw_module_size_var(const TwModule* module, size_t index, TwSizeVar* out);

/* One dimension of an input or output of the function "main". */
typedef struct {
  const char* text; /* "224", "N", "(N + 1) / 2" */
  int32_t is_open;  /* 1: it depends on size variables */
  int64_t min;      /* its sizes where all variables have their minima, and their maxima */
  int64_t max;
} TwDimInfo;

TW_API TwStatus tw_module_input_dim(const TwModule* module, size_t index, int32_t dim,
                                    TwDimInfo* out);
TW_API TwStatus tw_module_output_dim(const TwModule* module, size_t index, int32_t dim,
                                     TwDimInfo* out);

/* Writes the shape that output `index` has for inputs of these shapes: `ndim` numbers, as many as
 * tw_module_output says. inputs[i] is a tensor of input i's shape; nothing else of it is looked at.
 * INVALID_ARGUMENT if the shapes do not fit the module: the error text names the input, the
 * dimension, what was found and what is allowed. */
TW_API TwStatus tw_module_output_shape(const TwModule* module, const DLTensor* const* inputs,
                                       size_t num_inputs, size_t index, int64_t* shape,
                                       int32_t ndim);

/* 1 where only a run tells the shape of output `index`, such as how many elements a condition holds
 * for; tw_module_output_shape then writes the largest. 0 for all others. */
TW_API int tw_module_output_is_found(const TwModule* module, size_t index);

/* --- sessions -----------------------------------------------------------------------------------
 */
/* Makes a session that computes with `num_threads` threads, the calling one included. 0 means as
 * many as this process may use, which is also the most that a session gets. */
TW_API TwStatus tw_session_create(TwModule* module, int num_threads, TwSession** out);
/* NULL is allowed. */
TW_API void tw_session_destroy(TwSession* session);
TW_API int tw_session_num_threads(const TwSession* session);

/* Makes one whole call: copies the inputs, runs, copies the outputs. Waits while another thread
 * uses the session. inputs[i] is a CPU tensor of input i's type and shape, compact or strided; NULL
 * keeps the contents from before. outputs[i] describes the caller's memory for output i in the same
 * way; NULL skips the output. num_inputs and num_outputs are those of the module. Where dimensions
 * are open, the inputs' shapes choose the sizes of the call, and the outputs have the shapes of
 * tw_module_output_shape. An output whose shape a run finds (tw_module_output_is_found) is NULL, for
 * tw_session_get_output, or has the shape found; the call fails behind the run if it has another. */
TW_API TwStatus tw_session_call(TwSession* session, const DLTensor* const* inputs,
                                size_t num_inputs, const DLTensor* const* outputs,
                                size_t num_outputs);

/* The same in steps, without a copy of the outputs. */

/* Copies a CPU tensor of the input's type and shape, compact or strided. */
TW_API TwStatus tw_session_set_input(TwSession* session, size_t index, const DLTensor* tensor);
/* Copies `bytes` bytes, the input's compact row-major contents. */
TW_API TwStatus tw_session_set_input_bytes(TwSession* session, size_t index, const void* data,
                                           size_t bytes);
/* Gives an input a shape that its open dimensions allow. Its contents are undefined then, and
 * tw_session_set_input_bytes expects the bytes of this shape. Until then, open dimensions have their
 * smallest sizes. */
TW_API TwStatus tw_session_set_input_shape(TwSession* session, size_t index, const int64_t* shape,
                                           int32_t ndim);
TW_API TwStatus tw_session_run(TwSession* session);
/* Gives a view of the output, in the shape of the last run. It is valid as long as the session; the
 * next run or call changes its contents. Where dimensions are open, a run or call of other sizes
 * makes it invalid. */
TW_API TwStatus tw_session_get_output(TwSession* session, size_t index, DLTensor* out);

/* --- state: modules that keep lists from one run to the next, such as a decoder's keys and values -----
 * Each run makes the lists longer. A run that fails leaves them as they were. One that would make
 * them longer than the module was compiled for gets RESOURCE_EXHAUSTED
 * (`runtime.session.state_full`). */
/* Writes how many entries the lists have, and how many they may have; 0 and 0 without state. Either
 * pointer may be NULL. */
TW_API TwStatus tw_session_state_length(const TwSession* session, int64_t* length, int64_t* most);
/* Forgets the entries from `length` on; 0 forgets all. INVALID_ARGUMENT if there are fewer. */
TW_API TwStatus tw_session_reset_state(TwSession* session, int64_t length);

/* The time of one launch of a profiled run. */
typedef struct {
  const char* symbol;
  const char* name;
  int64_t ns;
} TwLaunchTime;

/* Runs once and reports the time of each launch, in order. The array belongs to the session; its
 * next profiled run overwrites it. */
TW_API TwStatus tw_session_run_profiled(TwSession* session, const TwLaunchTime** times,
                                        size_t* count);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DEPLOY_RUNTIME_TILEWRIGHT_H_ */
