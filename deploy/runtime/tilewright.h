/* C interface of libtilewright_runtime.so: open a module, make a session, set inputs, run, read
 * outputs. Plain C, stable: functions and codes are only ever added.
 *
 * Ownership: what tw_*_open and tw_session_create give is the caller's, to be closed by
 * tw_module_close and tw_session_destroy; a session keeps its module alive by itself. Names, shapes
 * and texts belong to the object they were asked of and live as long as it does.
 * Thread-safety: a module may be used from any number of threads, a session from one at a time; the
 * error text is per thread.
 * A function that can fail returns a TwStatus; on failure nothing has changed and tw_last_error()
 * tells why. Running a module runs machine code: open only modules you trust. */
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
  TW_STATUS_FAILED_PRECONDITION = 9, /* this machine cannot run the module */
  TW_STATUS_UNIMPLEMENTED = 12,
  TW_STATUS_INTERNAL = 13, /* a kernel failed */
  TW_STATUS_UNAVAILABLE = 14,
  TW_STATUS_DATA_LOSS = 15 /* the module is damaged */
} TwStatus;

typedef struct TwModule TwModule;
typedef struct TwSession TwSession;

/* Why the last call on this thread failed, "slug: detail"; "" before any failure. Valid until the
 * next failing call on this thread. */
TW_API const char* tw_last_error(void);

/* Version of the library, "0.1.0", and of the ABI that code objects are built for. */
TW_API const char* tw_runtime_version(void);
TW_API uint32_t tw_abi_version(void);

/* --- modules ------------------------------------------------------------------------------------
 */
TW_API TwStatus tw_module_open(const char* path, TwModule** out);
TW_API TwStatus tw_module_open_memory(const void* bytes, size_t size, TwModule** out);
TW_API void tw_module_close(TwModule* module); /* NULL is fine */

TW_API const char* tw_module_name(const TwModule* module);
TW_API const char* tw_module_target(const TwModule* module);
/* The manifest as canonical JSON. */
TW_API const char* tw_module_manifest(const TwModule* module);

/* One input or output of the function "main". */
typedef struct {
  const char* name;
  DLDataType dtype;
  const char* dtype_name; /* "float32" */
  int32_t ndim;
  const int64_t* shape;
  size_t bytes;
} TwTensorInfo;

TW_API size_t tw_module_num_inputs(const TwModule* module);
TW_API size_t tw_module_num_outputs(const TwModule* module);
TW_API TwStatus tw_module_input(const TwModule* module, size_t index, TwTensorInfo* out);
TW_API TwStatus tw_module_output(const TwModule* module, size_t index, TwTensorInfo* out);
/* The index of the input or output of that name; NOT_FOUND names those that exist. */
TW_API TwStatus tw_module_find_input(const TwModule* module, const char* name, size_t* index);
TW_API TwStatus tw_module_find_output(const TwModule* module, const char* name, size_t* index);

/* --- sessions -----------------------------------------------------------------------------------
 */
/* num_threads 0: as many as this process may use; more than that gives that many. */
TW_API TwStatus tw_session_create(TwModule* module, int num_threads, TwSession** out);
TW_API void tw_session_destroy(TwSession* session); /* NULL is fine */
TW_API int tw_session_num_threads(const TwSession* session);

/* Copies a CPU tensor of the input's type and shape, compact or strided. */
TW_API TwStatus tw_session_set_input(TwSession* session, size_t index, const DLTensor* tensor);
/* Copies `bytes` bytes, the input's compact row-major contents. */
TW_API TwStatus tw_session_set_input_bytes(TwSession* session, size_t index, const void* data,
                                           size_t bytes);
TW_API TwStatus tw_session_run(TwSession* session);
/* A view of the output, valid as long as the session; its contents change with the next run. */
TW_API TwStatus tw_session_get_output(TwSession* session, size_t index, DLTensor* out);

/* Time of one launch of a profiled run. */
typedef struct {
  const char* symbol;
  const char* name;
  int64_t ns;
} TwLaunchTime;

/* Runs once and reports the time of each launch, in order; the array belongs to the session and is
 * valid until its next profiled run. */
TW_API TwStatus tw_session_run_profiled(TwSession* session, const TwLaunchTime** times,
                                        size_t* count);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DEPLOY_RUNTIME_TILEWRIGHT_H_ */
