#define CL_TARGET_OPENCL_VERSION 120
#include <clblast.h>

#include "deploy/support/status.h"
#include "tests/bench/peers.h"

namespace tilewright::bench {
namespace {

void Check(cl_int code, const char* what) { TW_CHECK(code == CL_SUCCESS) << what << ": " << code; }
void Check(clblast::StatusCode code, const char* what) { Check(static_cast<cl_int>(code), what); }

// The first device of any platform, as the plug-in finds it, and its queue.
class Queue {
 public:
  Queue() {
    cl_platform_id platforms[16];
    cl_uint count = 0;
    Check(clGetPlatformIDs(16, platforms, &count), "clGetPlatformIDs");
    for (cl_uint i = 0; i < count && device_ == nullptr; ++i)
      clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device_, nullptr);
    TW_CHECK(device_ != nullptr) << "no OpenCL device";
    cl_int code = 0;
    context_ = clCreateContext(nullptr, 1, &device_, nullptr, nullptr, &code);
    Check(code, "clCreateContext");
    queue = clCreateCommandQueue(context_, device_, CL_QUEUE_PROFILING_ENABLE, &code);
    Check(code, "clCreateCommandQueue");
  }
  ~Queue() {
    for (cl_mem memory : memory_) clReleaseMemObject(memory);
    clReleaseCommandQueue(queue);
    clReleaseContext(context_);
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  cl_mem Alloc(int64_t floats) {
    cl_int code = 0;
    memory_.push_back(clCreateBuffer(context_, CL_MEM_READ_WRITE,
                                     static_cast<size_t>(floats) * sizeof(float), nullptr, &code));
    Check(code, "clCreateBuffer");
    return memory_.back();
  }
  cl_mem Upload(const std::vector<float>& values) {
    cl_mem memory = Alloc(static_cast<int64_t>(values.size()));
    Check(clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, values.size() * sizeof(float),
                               values.data(), 0, nullptr, nullptr),
          "clEnqueueWriteBuffer");
    return memory;
  }
  std::vector<float> Download(cl_mem memory, int64_t floats) {
    std::vector<float> values(static_cast<size_t>(floats));
    Check(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, values.size() * sizeof(float),
                              values.data(), 0, nullptr, nullptr),
          "clEnqueueReadBuffer");
    return values;
  }
  cl_event Mark() {
    cl_event marker = nullptr;
    Check(clEnqueueMarkerWithWaitList(queue, 0, nullptr, &marker), "clEnqueueMarker");
    return marker;
  }
  // Between two marks, which it releases.
  double Elapsed(cl_event from, cl_event to) {
    Check(clFinish(queue), "clFinish");
    const auto end = [](cl_event event) {
      cl_ulong ns = 0;
      Check(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(ns), &ns, nullptr),
            "clGetEventProfilingInfo");
      clReleaseEvent(event);
      return ns;
    };
    const cl_ulong start = end(from);
    return static_cast<double>(end(to) - start);
  }

  cl_command_queue queue = nullptr;

 private:
  cl_device_id device_ = nullptr;
  cl_context context_ = nullptr;
  std::vector<cl_mem> memory_;
};

class OnQueue : public DevicePeer {
 public:
  double Time(int64_t calls) override {
    const cl_event start = q_.Mark();
    for (int64_t i = 0; i < calls; ++i) Call();
    return q_.Elapsed(start, q_.Mark());
  }
  std::vector<float> Result() override { return q_.Download(y_, floats_); }

 protected:
  explicit OnQueue(int64_t floats) : floats_(floats), y_(q_.Alloc(floats)) {}
  virtual void Call() = 0;
  void Product(int64_t m, int64_t n, int64_t k, cl_mem a, cl_mem b) {
    const auto size = [](int64_t v) { return static_cast<size_t>(v); };
    Check(clblast::Gemm<float>(clblast::Layout::kRowMajor, clblast::Transpose::kNo,
                               clblast::Transpose::kNo, size(m), size(n), size(k), 1.0f, a, 0,
                               size(k), b, 0, size(n), 0.0f, y_, 0, size(n), &q_.queue),
          "clblast::Gemm");
  }

  Queue q_;
  int64_t floats_;
  cl_mem y_;
};

class Gemm final : public OnQueue {
 public:
  Gemm(const Layer& l, const Operands& v)
      : OnQueue(l.m * l.n), l_(l), x_(q_.Upload(v.x)), w_(q_.Upload(v.weights)) {}
  std::string name() const override { return "CLBlast gemm"; }

 private:
  void Call() override { Product(l_.m, l_.n, l_.k, x_, w_); }
  Layer l_;
  cl_mem x_, w_;
};

// y[o, pixel] = w[o, window] · windows[window, pixel]; windows of one pixel are the image itself.
class GatheredProduct final : public OnQueue {
 public:
  GatheredProduct(const Layer& l, const Operands& v)
      : OnQueue(l.out * l.out_size() * l.out_size()),
        l_(l),
        x_(q_.Upload(v.x)),
        w_(q_.Upload(v.weights)),
        gathers_(l.kernel > 1 || l.stride > 1),
        windows_(gathers_ ? q_.Alloc(Window() * Pixels()) : x_) {}
  std::string name() const override { return "CLBlast im2col and gemm"; }

 private:
  int64_t Window() const { return l_.in * l_.kernel * l_.kernel; }
  int64_t Pixels() const { return l_.out_size() * l_.out_size(); }
  void Call() override {
    if (gathers_) {
      const auto k = static_cast<size_t>(l_.kernel), size = static_cast<size_t>(l_.size);
      const auto stride = static_cast<size_t>(l_.stride);
      Check(clblast::Im2col<float>(clblast::KernelMode::kCrossCorrelation,
                                   static_cast<size_t>(l_.in), size, size, k, k, k / 2, k / 2,
                                   stride, stride, 1, 1, x_, 0, windows_, 0, &q_.queue),
            "clblast::Im2col");
    }
    Product(l_.out, Pixels(), Window(), w_, windows_);
  }
  Layer l_;
  cl_mem x_, w_;
  bool gathers_;
  cl_mem windows_;
};

class Convgemm final : public OnQueue {
 public:
  Convgemm(const Layer& l, const Operands& v)
      : OnQueue(l.out * l.out_size() * l.out_size()),
        l_(l),
        x_(q_.Upload(v.x)),
        w_(q_.Upload(v.weights)) {}
  std::string name() const override { return "CLBlast convgemm"; }

 private:
  void Call() override {
    const auto k = static_cast<size_t>(l_.kernel), size = static_cast<size_t>(l_.size);
    const auto stride = static_cast<size_t>(l_.stride);
    Check(
        clblast::Convgemm<float>(clblast::KernelMode::kCrossCorrelation, static_cast<size_t>(l_.in),
                                 size, size, k, k, k / 2, k / 2, stride, stride, 1, 1,
                                 static_cast<size_t>(l_.out), 1, x_, 0, w_, 0, y_, 0, &q_.queue),
        "clblast::Convgemm");
  }
  Layer l_;
  cl_mem x_, w_;
};

}  // namespace

std::vector<std::unique_ptr<DevicePeer>> MakeClBlastPeers(const Layer& layer,
                                                          const Operands& operands) {
  std::vector<std::unique_ptr<DevicePeer>> peers;
  if (layer.kind == Layer::Kind::kGemm) {
    peers.push_back(std::make_unique<Gemm>(layer, operands));
  } else if (!layer.depthwise) {
    peers.push_back(std::make_unique<GatheredProduct>(layer, operands));
    peers.push_back(std::make_unique<Convgemm>(layer, operands));
  }
  return peers;
}

}  // namespace tilewright::bench
