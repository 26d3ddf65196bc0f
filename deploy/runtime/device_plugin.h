/* C ABI of device plug-ins: how the runtime, and the worker that measures, use a device of any
 * kind. A plug-in is a shared object with one symbol, TW_DEVICE_PLUGIN_SYMBOL. It returns a table
 * of functions. The CPU of the process has the same table, linked in (device_loader.h). Plain C, no
 * dependencies.
 *
 * Ownership: the caller owns the results of open, alloc, load, event_create and graph_create, and
 * returns them with close, free, unload, event_destroy and graph_destroy, before it closes the
 * device. A kernel (find) belongs to its code. A function borrows the caller's memory for one call.
 * Order: one device handle is one queue. launch, copy and event_record may return before the work
 * is done. The work of a handle happens in the order of the calls. write and read return when the
 * caller may use its bytes again. read sees all earlier work. synchronize waits for all work.
 * Thread-safety: one thread at a time per device handle; different handles are independent.
 * Errors: a function that can fail returns a TwDeviceResult. last_error gives a text, "slug:
 * detail", until the next failure on that handle. If queued work fails, the next call that waits
 * reports it. After TW_DEVICE_LOST a handle can only be closed.
 *
 * Versioning: we raise TW_DEVICE_ABI_VERSION when an existing field or rule changes. Structs grow
 * only at their ends. Each begins with its size in bytes, as its writer knows it; a reader uses
 * only the fields within that size. A plug-in returns NULL to an older runtime that it cannot
 * serve. */
#ifndef DEPLOY_RUNTIME_DEVICE_PLUGIN_H_
#define DEPLOY_RUNTIME_DEVICE_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_DEVICE_ABI_VERSION 1u
#define TW_DEVICE_PLUGIN_SYMBOL "tw_device_plugin"

typedef enum {
  TW_DEVICE_OK = 0,
  TW_DEVICE_INVALID = 1,   /* an argument that no device could accept */
  TW_DEVICE_NOT_FOUND = 2, /* no such device, no such kernel */
  TW_DEVICE_OUT_OF_MEMORY = 3,
  TW_DEVICE_UNSUPPORTED = 4,   /* this device cannot: code format, group size, feature */
  TW_DEVICE_BAD_CODE = 5,      /* the code object does not build or load */
  TW_DEVICE_KERNEL_FAILED = 6, /* a kernel returned an error */
  TW_DEVICE_LOST = 7,          /* the device is gone, or was reset */
  TW_DEVICE_FAILED = 8,        /* anything else that the driver reports */
  TW_DEVICE_TIMED_OUT = 9      /* a kernel was ended at the driver's own limit; the device works on.
                                  Older runtimes take it for TW_DEVICE_FAILED */
} TwDeviceResult;

typedef struct TwDevice TwDevice;
typedef struct TwDeviceMemory TwDeviceMemory;
typedef struct TwDeviceCode TwDeviceCode;
typedef struct TwDeviceKernel TwDeviceKernel;
typedef struct TwDeviceEvent TwDeviceEvent;
typedef struct TwDeviceGraph TwDeviceGraph;

/* Describes a device. The texts belong to the device handle. */
typedef struct {
  size_t struct_bytes;
  const char* name;          /* as its maker calls it */
  const char* fingerprint;   /* `key=value` lines, sorted by key: what a measurement depends on.
                                Key "driver_compiler": load compiles, by the compiler NAME-VERSION.
                                Key "features": what code may ask for, with commas */
  const char* code_formats;  /* that load accepts, with commas: "elf-x86_64", "opencl-c" */
  int64_t memory_bytes;      /* 0 where unknown */
  int64_t shared_bytes;      /* of one group; 0 where there is no such memory */
  int64_t max_group_threads; /* 1 where a launch has no groups */
  int64_t alignment;         /* of every allocation, at least TW_BUFFER_ALIGNMENT */
  int64_t timer_ns;          /* resolution of events; device time where device_timer is not 0 */
  int32_t device_timer;      /* events count the device's own time, not the host's */
  int32_t host_visible;      /* map gives a pointer: the device shares the host's memory */
  const char* unit; /* of what event_elapsed gives, where device_timer is not 0: "device_ns",
                                "rtl_cycles", "simulated_cycles"; NULL: device_ns */
} TwDeviceInfo;

/* Part of an allocation: from `offset` to its end. */
typedef struct {
  TwDeviceMemory* memory;
  int64_t offset; /* a multiple of the device's alignment */
} TwDeviceSlice;

/* One launch. A kernel gets its integer sizes (64 bits each) and its buffers in the order of its
 * declared parameters. Devices whose kernels hold all their loops (CPU, VTA) want grid and group of
 * ones. */
typedef struct {
  size_t struct_bytes;
  TwDeviceKernel* kernel;
  int64_t grid[3];  /* groups along x y z, each at least 1 */
  int64_t group[3]; /* threads of a group along x y z, each at least 1 */
  const TwDeviceSlice* buffers;
  int64_t num_buffers;
  const int64_t* sizes;
  int64_t num_sizes;
  const TwDeviceSlice* workspace; /* NULL where the kernel declares none */
} TwDeviceLaunch;

/* The kernel with which an agent tests a device before it measures on it, and which it times as the
 * device's baseline. Of the size n and the buffers x and y of n floats it makes, one thread for each
 * element, y[i] = sum over j < 16 of (j + 1) / 8 * x[(i + j) mod n]. Its time must follow the
 * device's clock and nothing else: a chain of dependent steps in one group, for some 200
 * microseconds, does so; what shares a core, or wakes late, then hardly matters. */
typedef struct {
  const char* format; /* of the code object */
  const void* code;
  size_t code_bytes;
  const char* kernel; /* its name there */
  int64_t group;      /* threads of a group; n is a multiple of it */
} TwDeviceSelfTest;

/* What a device did in one launch: pictures for people, and where it stands below its own limits.
 * The texts belong to the device handle. */
typedef struct {
  size_t struct_bytes;
  const char* program;   /* what ran */
  int64_t time;          /* that it took, in the device's unit */
  const char* picture;   /* SVG: when each part of the device worked */
  const char* events;    /* Chrome's trace format; a unit of time is a microsecond there */
  const char* work_name; /* what `work` counts, in words */
  int64_t work;          /* that the launch needs */
  int64_t bytes;         /* that the busier channel to the device's memory moved */
  double peak_work;      /* the most for each unit of time */
  double peak_bytes;
} TwDeviceTrace;

/* Elements of the self-test of devices that compute with whole numbers only. */
#define TW_WHOLE_SELF_TEST_ELEMENTS 4096

/* The table of a plug-in. Every function is there. */
typedef struct {
  size_t struct_bytes;
  uint32_t abi_version; /* that the table is made for */
  const char* kind;     /* target kind: "cpu", "opencl", "vta" */

  /* Counts the devices that exist now. */
  TwDeviceResult (*count)(int32_t* devices);
  /* Opens device `index`. On failure `error` (of error_bytes, may be NULL) gets the text. */
  TwDeviceResult (*open)(int32_t index, TwDevice** device, char* error, size_t error_bytes);
  void (*close)(TwDevice* device);
  const char* (*last_error)(TwDevice* device);
  TwDeviceResult (*describe)(TwDevice* device, TwDeviceInfo* info); /* info->struct_bytes is set */

  /* bytes >= 1. Contents undefined. */
  TwDeviceResult (*alloc)(TwDevice* device, int64_t bytes, TwDeviceMemory** memory);
  void (*free)(TwDevice* device, TwDeviceMemory* memory);
  /* Ranges within the allocations; source and target of copy do not overlap. */
  TwDeviceResult (*write)(TwDevice* device, TwDeviceSlice target, const void* source,
                          int64_t bytes);
  TwDeviceResult (*read)(TwDevice* device, TwDeviceSlice source, void* target, int64_t bytes);
  TwDeviceResult (*copy)(TwDevice* device, TwDeviceSlice target, TwDeviceSlice source,
                         int64_t bytes);
  /* Where host_visible: the memory's address in this process. Else TW_DEVICE_UNSUPPORTED. */
  TwDeviceResult (*map)(TwDevice* device, TwDeviceMemory* memory, void** address);

  TwDeviceResult (*load)(TwDevice* device, const char* format, const void* image, size_t bytes,
                         TwDeviceCode** code);
  void (*unload)(TwDevice* device, TwDeviceCode* code);
  TwDeviceResult (*find)(TwDevice* device, TwDeviceCode* code, const char* name,
                         TwDeviceKernel** kernel);

  TwDeviceResult (*launch)(TwDevice* device, const TwDeviceLaunch* launch);
  TwDeviceResult (*synchronize)(TwDevice* device);

  /* A point in the queue. elapsed waits for both points. */
  TwDeviceResult (*event_create)(TwDevice* device, TwDeviceEvent** event);
  void (*event_destroy)(TwDevice* device, TwDeviceEvent* event);
  TwDeviceResult (*event_record)(TwDevice* device, TwDeviceEvent* event);
  TwDeviceResult (*event_elapsed)(TwDevice* device, TwDeviceEvent* from, TwDeviceEvent* to,
                                  int64_t* ns);

  const TwDeviceSelfTest*
      self_test; /* NULL, or absent from older plug-ins: agents do not measure */

  /* The device's own form of loaded code, which is quicker to load: `binary` gives it (the bytes
   * belong to the code), and load accepts it as this format. The name tells forms apart that were
   * made with different options. NULL, or absent from older plug-ins: there is none. */
  const char* binary_format;
  TwDeviceResult (*binary)(TwDevice* device, TwDeviceCode* code, const void** bytes, size_t* count);

  /* The self-test of devices that compute with whole numbers only, whose self_test is NULL. Of x, n
   * numbers of 32 bits, it makes y, n bytes: y[i] = the low 8 bits of 3 * x[i] + 5. n is
   * TW_WHOLE_SELF_TEST_ELEMENTS; the kernel takes no sizes, and is one call (grid and group of
   * ones). NULL, or absent from older plug-ins: there is none. */
  const TwDeviceSelfTest* whole_self_test;

  /* A graph is a list of launches that can be queued again as one call, with the same grids, sizes
   * and memory. graph_create keeps what it needs of the launches and queues nothing.
   * TW_DEVICE_UNSUPPORTED: this driver has no graphs. A graph is destroyed before its kernels' code
   * is unloaded and its memory freed. NULL, or absent from older plug-ins: there are none. */
  TwDeviceResult (*graph_create)(TwDevice* device, const TwDeviceLaunch* const* launches,
                                 int64_t count, TwDeviceGraph** graph);
  void (*graph_destroy)(TwDevice* device, TwDeviceGraph* graph);
  TwDeviceResult (*graph_launch)(TwDevice* device, TwDeviceGraph* graph);

  /* Launches, waits for the end, and says what the device did meanwhile. The trace is valid until
   * the next call of trace on the handle. TW_DEVICE_UNSUPPORTED: this device cannot see it; nothing
   * was launched. NULL, or absent from older plug-ins: none can. */
  TwDeviceResult (*trace)(TwDevice* device, const TwDeviceLaunch* launch,
                          const TwDeviceTrace** trace);
} TwDevicePlugin;

/* Its value where functions named Count, Open … EventElapsed are in scope. */
#define TW_DEVICE_PLUGIN_TABLE(KIND, SELF_TEST) \
  TW_DEVICE_PLUGIN_TABLE_WITH_BINARIES(KIND, SELF_TEST, NULL, NULL)
#define TW_DEVICE_PLUGIN_TABLE_WITH_BINARIES(KIND, SELF_TEST, FORMAT, BINARY) \
  TW_DEVICE_PLUGIN_TABLE_WITH_ALL(KIND, SELF_TEST, FORMAT, BINARY, NULL, NULL, NULL, NULL)
#define TW_DEVICE_PLUGIN_TABLE_OF_WHOLE_NUMBERS(KIND, SELF_TEST) \
  TW_DEVICE_PLUGIN_TABLE_WITH_ALL(KIND, NULL, NULL, NULL, SELF_TEST, NULL, NULL, NULL)
/* The same with GraphCreate, GraphDestroy and GraphLaunch. */
#define TW_DEVICE_PLUGIN_TABLE_WITH_GRAPHS(KIND, SELF_TEST)                                     \
  TW_DEVICE_PLUGIN_TABLE_WITH_ALL(KIND, SELF_TEST, NULL, NULL, NULL, GraphCreate, GraphDestroy, \
                                  GraphLaunch)
#define TW_DEVICE_PLUGIN_TABLE_WITH_ALL(KIND, SELF_TEST, FORMAT, BINARY, WHOLE, CREATE, DESTROY, \
                                        LAUNCH)                                                  \
  {                                                                                              \
      .struct_bytes = sizeof(TwDevicePlugin),                                                    \
      .abi_version = TW_DEVICE_ABI_VERSION,                                                      \
      .kind = KIND,                                                                              \
      .count = Count,                                                                            \
      .open = Open,                                                                              \
      .close = Close,                                                                            \
      .last_error = LastError,                                                                   \
      .describe = Describe,                                                                      \
      .alloc = Alloc,                                                                            \
      .free = Free,                                                                              \
      .write = Write,                                                                            \
      .read = Read,                                                                              \
      .copy = Copy,                                                                              \
      .map = Map,                                                                                \
      .load = Load,                                                                              \
      .unload = Unload,                                                                          \
      .find = Find,                                                                              \
      .launch = Launch,                                                                          \
      .synchronize = Synchronize,                                                                \
      .event_create = EventCreate,                                                               \
      .event_destroy = EventDestroy,                                                             \
      .event_record = EventRecord,                                                               \
      .event_elapsed = EventElapsed,                                                             \
      .self_test = SELF_TEST,                                                                    \
      .binary_format = FORMAT,                                                                   \
      .binary = BINARY,                                                                          \
      .whole_self_test = WHOLE,                                                                  \
      .graph_create = CREATE,                                                                    \
      .graph_destroy = DESTROY,                                                                  \
      .graph_launch = LAUNCH,                                                                    \
      .trace = NULL,                                                                             \
  }

/* The type of a plug-in's one symbol. Returns NULL if the plug-in cannot work with a runtime of
 * this version. The table is valid as long as the shared object is loaded. */
typedef const TwDevicePlugin* (*TwDevicePluginFn)(uint32_t runtime_abi_version);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DEPLOY_RUNTIME_DEVICE_PLUGIN_H_ */
