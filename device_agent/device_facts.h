// The attributes of a worker's machine, which targets are matched against. The worker itself reads
// them, because it may run on another machine than its agent. No state.
#pragma once

#include <cstdint>
#include <string>

#include "deploy/runtime/cpu_info.h"
#include "tilewright/v1/common.pb.h"

namespace tilewright::device_agent {

using Attributes = google::protobuf::Map<std::string, v1::Attribute>;

struct HostFacts {
  std::string kernel;  // release, for people
  int64_t memory_bytes = 0;
};
HostFacts ReadHostFacts();

// What all cores reach together (deploy/peaks); 0: not measured, or the processor has no such
// instructions.
struct CpuPeaks {
  double gflops = 0;
  double int8_gops = 0;
};
// Of a device of kind "cpu": kind, arch, cpu, cpu_accepts, cores, caches, memory, kernel, features;
// peak_gflops and peak_int8_gops where they are above 0.
Attributes CpuAttributes(const runtime::CpuInfo& cpu, const HostFacts& host, const CpuPeaks& peaks);

}  // namespace tilewright::device_agent
