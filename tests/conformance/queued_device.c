/* A device plug-in for the conformance suite: memory of its own that the host cannot see, and a
 * queue that does nothing before somebody waits. So what the suite accepts does not rest on a
 * device that is done when a call returns. Its code objects are the text "queued", with the kernels
 * `add` (out = a + b, one element for each thread of the launch), `self_test` and `fail`. Plain C, to
 * show that the ABI is. deploy/runtime/README.md counts what such a device takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deploy/runtime/device_plugin.h"

enum { kAlignment = 64, kMaxThreads = 64, kTextBytes = 200 };

struct TwDeviceMemory {
  char* data;
  int64_t bytes;
};
struct TwDeviceKernel {
  int64_t buffers;
  /* buffers - 1 inputs and the output, of n floats; NULL: fails */
  void (*run)(int64_t n, float* const* at);
};
struct TwDeviceCode {
  struct TwDeviceKernel add, self_test, fail;
};
struct TwDeviceEvent {
  int64_t at; /* -1: not recorded; otherwise the device's time */
  int recorded;
};
struct Work {
  struct Work* next;
  struct TwDeviceKernel* kernel; /* a launch of threads, or */
  int64_t threads;
  float* at[3];
  char *target, *source; /* a copy, or */
  int64_t bytes;
  struct TwDeviceEvent* event; /* a point */
};
struct TwDevice {
  struct Work *first, *last;
  int64_t now; /* virtual nanoseconds: one for each thread that ran */
  char error[kTextBytes];
};

static TwDeviceResult Failed(TwDevice* d, TwDeviceResult result, const char* text) {
  snprintf(d->error, sizeof(d->error), "device.queued.%s", text);
  return result;
}

static void Add(int64_t n, float* const* at) {
  for (int64_t i = 0; i < n; ++i) at[2][i] = at[0][i] + at[1][i];
}
static void SelfTest(int64_t n, float* const* at) {
  for (int64_t i = 0; i < n; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < 16; ++j) sum += (float)(j + 1) / 8 * at[0][(i + j) % n];
    at[1][i] = sum;
  }
}

static TwDeviceResult Drain(TwDevice* d) {
  TwDeviceResult result = TW_DEVICE_OK;
  while (d->first != NULL) {
    struct Work* w = d->first;
    d->first = w->next;
    if (w->kernel != NULL && w->kernel->run == NULL) {
      result = Failed(d, TW_DEVICE_KERNEL_FAILED, "kernel: expected success, found a failure");
    } else if (w->kernel != NULL) {
      w->kernel->run(w->threads, w->at);
      d->now += w->threads;
    } else if (w->event != NULL) {
      w->event->at = d->now;
    } else {
      memcpy(w->target, w->source, (size_t)w->bytes);
    }
    free(w);
  }
  d->last = NULL;
  return result;
}

static struct Work* Push(TwDevice* d) {
  struct Work* w = calloc(1, sizeof(*w));
  if (w == NULL) abort();
  if (d->last != NULL) {
    d->last->next = w;
  } else {
    d->first = w;
  }
  d->last = w;
  return w;
}

static int InRange(TwDeviceSlice s, int64_t bytes) {
  return s.memory != NULL && s.offset >= 0 && bytes >= 0 && s.offset <= s.memory->bytes &&
         bytes <= s.memory->bytes - s.offset;
}

static TwDeviceResult Count(int32_t* devices) {
  *devices = 1;
  return TW_DEVICE_OK;
}
static TwDeviceResult Open(int32_t index, TwDevice** device, char* error, size_t error_bytes) {
  if (index != 0) {
    if (error != NULL && error_bytes > 0)
      snprintf(error, error_bytes, "device.queued.index: expected 0, found %d", (int)index);
    return TW_DEVICE_NOT_FOUND;
  }
  *device = calloc(1, sizeof(**device));
  return *device == NULL ? TW_DEVICE_OUT_OF_MEMORY : TW_DEVICE_OK;
}
static void Close(TwDevice* d) {
  Drain(d);
  free(d);
}
static const char* LastError(TwDevice* d) { return d->error; }
static TwDeviceResult Describe(TwDevice* d, TwDeviceInfo* info) {
  TwDeviceInfo all = {0};
  if (info->struct_bytes < sizeof(size_t))
    return Failed(d, TW_DEVICE_INVALID, "info: expected struct_bytes to be set");
  all.struct_bytes = info->struct_bytes < sizeof(all) ? info->struct_bytes : sizeof(all);
  all.name = "queued";
  all.fingerprint = "kind=queued\n";
  all.code_formats = "queued";
  all.max_group_threads = kMaxThreads;
  all.alignment = kAlignment;
  all.timer_ns = 1;
  all.device_timer = 1;
  memcpy(info, &all, all.struct_bytes);
  return TW_DEVICE_OK;
}
static TwDeviceResult Alloc(TwDevice* d, int64_t bytes, TwDeviceMemory** memory) {
  if (bytes < 1) return Failed(d, TW_DEVICE_INVALID, "bytes: expected at least 1 byte");
  if (bytes > ((int64_t)1 << 40))
    return Failed(d, TW_DEVICE_OUT_OF_MEMORY, "memory: expected less");
  *memory = malloc(sizeof(**memory));
  if (*memory == NULL) return Failed(d, TW_DEVICE_OUT_OF_MEMORY, "memory: expected less");
  (*memory)->bytes = bytes;
  (*memory)->data = malloc((size_t)bytes);
  if ((*memory)->data != NULL) return TW_DEVICE_OK;
  free(*memory);
  return Failed(d, TW_DEVICE_OUT_OF_MEMORY, "memory: expected less");
}
static void Free(TwDevice* d, TwDeviceMemory* memory) {
  Drain(d); /* work under way may use it */
  if (memory == NULL) return;
  free(memory->data);
  free(memory);
}
static TwDeviceResult Write(TwDevice* d, TwDeviceSlice target, const void* source, int64_t bytes) {
  if (!InRange(target, bytes)) return Failed(d, TW_DEVICE_INVALID, "range: expected one within");
  TwDeviceResult result = Drain(d);
  if (result == TW_DEVICE_OK) memcpy(target.memory->data + target.offset, source, (size_t)bytes);
  return result;
}
static TwDeviceResult Read(TwDevice* d, TwDeviceSlice source, void* target, int64_t bytes) {
  if (!InRange(source, bytes)) return Failed(d, TW_DEVICE_INVALID, "range: expected one within");
  TwDeviceResult result = Drain(d);
  if (result == TW_DEVICE_OK) memcpy(target, source.memory->data + source.offset, (size_t)bytes);
  return result;
}
static TwDeviceResult Copy(TwDevice* d, TwDeviceSlice target, TwDeviceSlice source, int64_t bytes) {
  if (!InRange(target, bytes) || !InRange(source, bytes))
    return Failed(d, TW_DEVICE_INVALID, "range: expected one within");
  struct Work* w = Push(d);
  w->target = target.memory->data + target.offset;
  w->source = source.memory->data + source.offset;
  w->bytes = bytes;
  return TW_DEVICE_OK;
}
static TwDeviceResult Map(TwDevice* d, TwDeviceMemory* memory, void** address) {
  (void)memory;
  (void)address;
  return Failed(d, TW_DEVICE_UNSUPPORTED, "map: expected read and write, found map");
}
static TwDeviceResult Load(TwDevice* d, const char* format, const void* image, size_t bytes,
                           TwDeviceCode** code) {
  if (strcmp(format, "queued") != 0)
    return Failed(d, TW_DEVICE_UNSUPPORTED, "format: expected queued");
  if (bytes != 6 || memcmp(image, "queued", 6) != 0)
    return Failed(d, TW_DEVICE_BAD_CODE, "code: expected the text queued");
  *code = calloc(1, sizeof(**code));
  if (*code == NULL) return Failed(d, TW_DEVICE_OUT_OF_MEMORY, "memory: expected less");
  (*code)->add = (struct TwDeviceKernel){3, Add};
  (*code)->self_test = (struct TwDeviceKernel){2, SelfTest};
  (*code)->fail = (struct TwDeviceKernel){3, NULL};
  return TW_DEVICE_OK;
}
static void Unload(TwDevice* d, TwDeviceCode* code) {
  Drain(d);
  free(code);
}
static TwDeviceResult Find(TwDevice* d, TwDeviceCode* code, const char* name,
                           TwDeviceKernel** kernel) {
  *kernel = strcmp(name, "add") == 0         ? &code->add
            : strcmp(name, "self_test") == 0 ? &code->self_test
            : strcmp(name, "fail") == 0      ? &code->fail
                                             : NULL;
  return *kernel != NULL ? TW_DEVICE_OK : Failed(d, TW_DEVICE_NOT_FOUND, "kernel: expected add");
}
static TwDeviceResult Launch(TwDevice* d, const TwDeviceLaunch* launch) {
  int64_t group = 1, threads = 1;
  for (int a = 0; a < 3; ++a) {
    if (launch->grid[a] < 1 || launch->group[a] < 1)
      return Failed(d, TW_DEVICE_INVALID, "grid: expected at least one group and thread");
    group *= launch->group[a];
    threads *= launch->grid[a] * launch->group[a];
  }
  if (group > kMaxThreads) return Failed(d, TW_DEVICE_UNSUPPORTED, "group: expected fewer threads");
  if (launch->num_buffers != launch->kernel->buffers || launch->num_sizes != 1 ||
      launch->sizes[0] > threads)
    return Failed(d, TW_DEVICE_INVALID, "arguments: expected one size and the kernel's buffers");
  float* at[3] = {NULL, NULL, NULL};
  for (int i = 0; i < launch->num_buffers; ++i) {
    if (!InRange(launch->buffers[i], launch->sizes[0] * (int64_t)sizeof(float)))
      return Failed(d, TW_DEVICE_INVALID, "range: expected one within");
    at[i] = (float*)(void*)(launch->buffers[i].memory->data + launch->buffers[i].offset);
  }
  struct Work* w = Push(d);
  w->kernel = launch->kernel;
  w->threads = launch->sizes[0];
  memcpy(w->at, at, sizeof(at));
  return TW_DEVICE_OK;
}
static TwDeviceResult Synchronize(TwDevice* d) { return Drain(d); }
static TwDeviceResult EventCreate(TwDevice* d, TwDeviceEvent** event) {
  (void)d;
  *event = calloc(1, sizeof(**event));
  return *event == NULL ? TW_DEVICE_OUT_OF_MEMORY : TW_DEVICE_OK;
}
static void EventDestroy(TwDevice* d, TwDeviceEvent* event) {
  Drain(d);
  free(event);
}
static TwDeviceResult EventRecord(TwDevice* d, TwDeviceEvent* event) {
  event->recorded = 1;
  Push(d)->event = event;
  return TW_DEVICE_OK;
}
static TwDeviceResult EventElapsed(TwDevice* d, TwDeviceEvent* from, TwDeviceEvent* to,
                                   int64_t* ns) {
  if (!from->recorded || !to->recorded)
    return Failed(d, TW_DEVICE_INVALID, "event: expected recorded events");
  TwDeviceResult result = Drain(d);
  *ns = to->at - from->at;
  return result;
}

static const TwDeviceSelfTest kSelfTest = {"queued", "queued", 6, "self_test", 16};
static const TwDevicePlugin kTable = TW_DEVICE_PLUGIN_TABLE("queued", &kSelfTest);

const TwDevicePlugin* tw_device_plugin(uint32_t runtime_abi_version);
const TwDevicePlugin* tw_device_plugin(uint32_t runtime_abi_version) {
  return runtime_abi_version == TW_DEVICE_ABI_VERSION ? &kTable : NULL;
}
