/* The toy's device plug-in: kernels are C text (codegen_toy.cc), which the system's compiler makes a
 * shared object of. A launch calls the kernel for one group after the other, and is done when it
 * returns. Memory is the process's own; time is counted in groups. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "deploy/runtime/device_plugin.h"

enum { kAlignment = 64, kTextBytes = 200 };

typedef void (*Entry)(const int64_t* group, const int64_t* sizes, void* const* buffers);

struct TwDeviceMemory {
  int64_t bytes;
  char* data;
};
struct TwDeviceEvent {
  int64_t at; /* -1: not recorded */
};
struct TwDevice {
  int64_t groups;
  char error[kTextBytes];
};

static TwDeviceResult Failed(TwDevice* d, TwDeviceResult result, const char* text) {
  snprintf(d->error, sizeof(d->error), "device.toy.%s", text);
  return result;
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
      snprintf(error, error_bytes, "device.toy.index: expected 0, found %d", (int)index);
    return TW_DEVICE_NOT_FOUND;
  }
  *device = calloc(1, sizeof(**device));
  return *device == NULL ? TW_DEVICE_OUT_OF_MEMORY : TW_DEVICE_OK;
}
static void Close(TwDevice* d) { free(d); }
static const char* LastError(TwDevice* d) { return d->error; }
static TwDeviceResult Describe(TwDevice* d, TwDeviceInfo* info) {
  TwDeviceInfo all = {0};
  if (info->struct_bytes < sizeof(size_t))
    return Failed(d, TW_DEVICE_INVALID, "info: expected struct_bytes to be set");
  all.struct_bytes = info->struct_bytes < sizeof(all) ? info->struct_bytes : sizeof(all);
  all.name = "toy";
  all.fingerprint = "kind=toy\n";
  all.code_formats = "toy-c";
  all.max_group_threads = 1;
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
  TwDeviceMemory* made = malloc(sizeof(*made));
  if (made == NULL) return Failed(d, TW_DEVICE_OUT_OF_MEMORY, "memory: expected less");
  made->bytes = bytes;
  made->data = aligned_alloc(kAlignment, (size_t)((bytes + kAlignment - 1) & -kAlignment));
  if (made->data == NULL) {
    free(made);
    return Failed(d, TW_DEVICE_OUT_OF_MEMORY, "memory: expected less");
  }
  *memory = made;
  return TW_DEVICE_OK;
}
static void Free(TwDevice* d, TwDeviceMemory* memory) {
  (void)d;
  if (memory == NULL) return;
  free(memory->data);
  free(memory);
}
static TwDeviceResult Write(TwDevice* d, TwDeviceSlice target, const void* source, int64_t bytes) {
  if (!InRange(target, bytes)) return Failed(d, TW_DEVICE_INVALID, "range: expected one within");
  memcpy(target.memory->data + target.offset, source, (size_t)bytes);
  return TW_DEVICE_OK;
}
static TwDeviceResult Read(TwDevice* d, TwDeviceSlice source, void* target, int64_t bytes) {
  if (!InRange(source, bytes)) return Failed(d, TW_DEVICE_INVALID, "range: expected one within");
  memcpy(target, source.memory->data + source.offset, (size_t)bytes);
  return TW_DEVICE_OK;
}
static TwDeviceResult Copy(TwDevice* d, TwDeviceSlice target, TwDeviceSlice source, int64_t bytes) {
  if (!InRange(target, bytes) || !InRange(source, bytes))
    return Failed(d, TW_DEVICE_INVALID, "range: expected one within");
  memcpy(target.memory->data + target.offset, source.memory->data + source.offset, (size_t)bytes);
  return TW_DEVICE_OK;
}
static TwDeviceResult Map(TwDevice* d, TwDeviceMemory* memory, void** address) {
  (void)memory;
  (void)address;
  return Failed(d, TW_DEVICE_UNSUPPORTED, "map: expected read and write, found map");
}

/* Code is the handle of its shared object, a kernel is its entry. */
static TwDeviceResult Load(TwDevice* d, const char* format, const void* image, size_t bytes,
                           TwDeviceCode** code) {
  if (strcmp(format, "toy-c") != 0)
    return Failed(d, TW_DEVICE_UNSUPPORTED, "format: expected toy-c");
  char path[] = "/tmp/tilewright_toy_XXXXXX", command[kTextBytes];
  const int file = mkstemp(path);
  if (file < 0) return Failed(d, TW_DEVICE_FAILED, "load: expected a folder for files");
  close(file);
  snprintf(command, sizeof(command),
           "cc -w -O1 -ffp-contract=off -shared -fPIC -x c - -o %s -lm 2>/dev/null", path);
  FILE* compiler = popen(command, "w");
  if (compiler != NULL) fwrite(image, 1, bytes, compiler);
  const int built = compiler != NULL && pclose(compiler) == 0;
  *code = built ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  unlink(path);
  return *code != NULL ? TW_DEVICE_OK
                       : Failed(d, TW_DEVICE_BAD_CODE, "code: expected C that compiles");
}
static void Unload(TwDevice* d, TwDeviceCode* code) {
  (void)d;
  dlclose(code);
}
static TwDeviceResult Find(TwDevice* d, TwDeviceCode* code, const char* name,
                           TwDeviceKernel** kernel) {
  char entry[kTextBytes];
  snprintf(entry, sizeof(entry), "toy_%s", name);
  *kernel = dlsym(code, entry);
  return *kernel != NULL ? TW_DEVICE_OK
                         : Failed(d, TW_DEVICE_NOT_FOUND, "kernel: expected one of the text");
}

static TwDeviceResult Launch(TwDevice* d, const TwDeviceLaunch* launch) {
  Entry entry;
  memcpy(&entry, &launch->kernel, sizeof(entry));
  if (launch->group[0] * launch->group[1] * launch->group[2] != 1)
    return Failed(d, TW_DEVICE_UNSUPPORTED, "group: expected one thread");
  void** buffers = calloc((size_t)launch->num_buffers + 1, sizeof(*buffers));
  if (buffers == NULL) return Failed(d, TW_DEVICE_OUT_OF_MEMORY, "memory: expected less");
  for (int64_t i = 0; i < launch->num_buffers; ++i)
    buffers[i] = launch->buffers[i].memory->data + launch->buffers[i].offset;
  int64_t group[3];
  for (group[2] = 0; group[2] < launch->grid[2]; ++group[2]) {
    for (group[1] = 0; group[1] < launch->grid[1]; ++group[1]) {
      for (group[0] = 0; group[0] < launch->grid[0]; ++group[0], ++d->groups)
        entry(group, launch->sizes, buffers);
    }
  }
  free(buffers);
  return TW_DEVICE_OK;
}
static TwDeviceResult Synchronize(TwDevice* d) {
  (void)d;
  return TW_DEVICE_OK;
}

static TwDeviceResult EventCreate(TwDevice* d, TwDeviceEvent** event) {
  *event = malloc(sizeof(**event));
  if (*event == NULL) return Failed(d, TW_DEVICE_OUT_OF_MEMORY, "memory: expected less");
  (*event)->at = -1;
  return TW_DEVICE_OK;
}
static void EventDestroy(TwDevice* d, TwDeviceEvent* event) {
  (void)d;
  free(event);
}
static TwDeviceResult EventRecord(TwDevice* d, TwDeviceEvent* event) {
  event->at = d->groups;
  return TW_DEVICE_OK;
}
static TwDeviceResult EventElapsed(TwDevice* d, TwDeviceEvent* from, TwDeviceEvent* to,
                                   int64_t* ns) {
  if (from->at < 0 || to->at < 0)
    return Failed(d, TW_DEVICE_INVALID, "event: expected recorded events");
  *ns = to->at - from->at;
  return TW_DEVICE_OK;
}

static const char kSelfTestCode[] =
    "void toy_self_test(const long* group, const long* sizes, void* const* buffers) {\n"
    "  const float* x = buffers[0];\n"
    "  float sum = 0;\n"
    "  for (long j = 0; j < 16; ++j) sum += (float)(j + 1) / 8 * x[(group[0] + j) % sizes[0]];\n"
    "  ((float*)buffers[1])[group[0]] = sum;\n"
    "}\n";
static const TwDeviceSelfTest kSelfTest = {"toy-c", kSelfTestCode, sizeof(kSelfTestCode) - 1,
                                           "self_test", 1};
static const TwDevicePlugin kTable = TW_DEVICE_PLUGIN_TABLE("toy", &kSelfTest);

const TwDevicePlugin* tw_device_plugin(uint32_t runtime_abi_version);
const TwDevicePlugin* tw_device_plugin(uint32_t runtime_abi_version) {
  return runtime_abi_version == TW_DEVICE_ABI_VERSION ? &kTable : NULL;
}
