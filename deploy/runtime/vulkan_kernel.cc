#include "deploy/runtime/vulkan_kernel.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <spirv/unified1/spirv.hpp11>

namespace tilewright::vulkan {
namespace {

constexpr size_t kHeaderWords = 5;
constexpr int64_t kMostBytes = std::numeric_limits<uint32_t>::max();

class Reader {
 public:
  Reader(const uint32_t* words, size_t count, KernelFacts* facts)
      : words_(words), count_(count), facts_(*facts) {}

  std::string Read();

 private:
  // One instruction: operand i, 0 where there are fewer.
  struct Instruction {
    spv::Op op;
    const uint32_t* operands;
    size_t count;
    uint32_t operator[](size_t i) const { return i < count ? operands[i] : 0; }
  };

  bool Text(const Instruction& in, size_t first, std::string* text) const;
  bool Take(const Instruction& in);
  bool TakeType(const Instruction& in);
  bool TakeVariable(const Instruction& in);
  bool SizeOf(uint32_t id, int64_t* bytes) const {
    const auto found = bytes_.find(id);
    if (found == bytes_.end()) return false;
    *bytes = found->second;
    return true;
  }

  const uint32_t* words_;
  const size_t count_;
  KernelFacts& facts_;
  int entry_points_ = 0;
  uint32_t entry_ = 0;
  std::map<uint32_t, int64_t> bytes_;       // of types; 0: open
  std::map<uint32_t, uint32_t> constants_;  // their first words
  std::map<uint32_t, uint32_t> pointees_;   // of pointer types
  std::map<uint32_t, uint32_t> bindings_;   // of variables
  std::map<uint32_t, int64_t> buffers_;     // by binding
};

bool Reader::Text(const Instruction& in, size_t first, std::string* text) const {
  if (first >= in.count) return false;
  const auto* begin = reinterpret_cast<const char*>(in.operands + first);
  const size_t most = (in.count - first) * sizeof(uint32_t);
  const size_t length = strnlen(begin, most);
  text->assign(begin, length);
  return length < most;
}

bool Reader::TakeType(const Instruction& in) {
  const uint32_t id = in[0];
  int64_t bytes = 0, element = 0;
  switch (in.op) {
    case spv::Op::OpTypeBool:
      bytes = 4;
      break;
    case spv::Op::OpTypeInt:
    case spv::Op::OpTypeFloat:
      bytes = in[1] / 8;
      break;
    case spv::Op::OpTypeVector:
      if (!SizeOf(in[1], &element) || in[2] > 16) return false;
      bytes = element * in[2];
      break;
    case spv::Op::OpTypeArray: {
      const auto length = constants_.find(in[2]);
      if (!SizeOf(in[1], &element) || length == constants_.end() || element == 0 ||
          length->second > kMostBytes / element)
        return false;
      bytes = element * length->second;
      break;
    }
    case spv::Op::OpTypeRuntimeArray:
      if (!SizeOf(in[1], &element)) return false;
      break;
    default:  // a structure
      for (size_t i = 1; i < in.count; ++i) {
        if (!SizeOf(in[i], &element)) return false;
        bytes += element;
      }
  }
  if (bytes > kMostBytes) return false;
  return bytes_.try_emplace(id, bytes).second;
}

bool Reader::TakeVariable(const Instruction& in) {
  const auto pointee = pointees_.find(in[0]);
  if (pointee == pointees_.end()) return false;
  int64_t bytes = 0;
  switch (static_cast<spv::StorageClass>(in[2])) {
    case spv::StorageClass::Workgroup:
      if (!SizeOf(pointee->second, &bytes) || bytes == 0) return false;
      facts_.shared_bytes += bytes;
      return facts_.shared_bytes <= kMostBytes;
    case spv::StorageClass::PushConstant:
      return SizeOf(pointee->second, &facts_.size_bytes);
    case spv::StorageClass::StorageBuffer: {
      const auto binding = bindings_.find(in[1]);
      if (binding == bindings_.end() || !SizeOf(pointee->second, &bytes)) return false;
      // Variables of other types may be the same buffer.
      int64_t& most = buffers_[binding->second];
      most = std::max(most, bytes);
      return true;
    }
    default:
      return true;
  }
}

bool Reader::Take(const Instruction& in) {
  switch (in.op) {
    case spv::Op::OpCapability:
      facts_.capabilities.insert(in[0]);
      return true;
    case spv::Op::OpEntryPoint:
      ++entry_points_;
      entry_ = in[1];
      return static_cast<spv::ExecutionModel>(in[0]) == spv::ExecutionModel::GLCompute &&
             Text(in, 2, &facts_.name);
    case spv::Op::OpExecutionMode:
      if (in[0] == entry_ &&
          static_cast<spv::ExecutionMode>(in[1]) == spv::ExecutionMode::LocalSize)
        facts_.group = {in[2], in[3], in[4]};
      return true;
    case spv::Op::OpDecorate: {
      const auto decoration = static_cast<spv::Decoration>(in[1]);
      if (decoration == spv::Decoration::Binding) bindings_[in[0]] = in[2];
      if (decoration == spv::Decoration::SpecId) facts_.specialises = true;
      return true;
    }
    case spv::Op::OpTypeBool:
    case spv::Op::OpTypeInt:
    case spv::Op::OpTypeFloat:
    case spv::Op::OpTypeVector:
    case spv::Op::OpTypeArray:
    case spv::Op::OpTypeRuntimeArray:
    case spv::Op::OpTypeStruct:
      return TakeType(in);
    case spv::Op::OpTypePointer:
      pointees_[in[0]] = in[2];
      return true;
    case spv::Op::OpConstant:
      constants_[in[1]] = in[2];
      return true;
    case spv::Op::OpVariable:
      return static_cast<spv::StorageClass>(in[2]) == spv::StorageClass::Function ||
             TakeVariable(in);
    default:
      return true;
  }
}

std::string Reader::Read() {
  if (count_ < kHeaderWords || words_[0] != spv::MagicNumber)
    return "expected a SPIR-V module, found other words";
  for (size_t at = kHeaderWords; at < count_;) {
    const size_t length = words_[at] >> 16;
    if (length == 0 || length > count_ - at)
      return "expected whole instructions, found one cut short at word " + std::to_string(at);
    const Instruction in = {static_cast<spv::Op>(words_[at] & 0xffff), words_ + at + 1, length - 1};
    if (!Take(in)) {
      return "expected declarations that fit together, found instruction " +
             std::to_string(words_[at] & 0xffff) + " at word " + std::to_string(at);
    }
    at += length;
  }
  if (entry_points_ != 1) return "expected one entry point, found " + std::to_string(entry_points_);
  for (uint32_t threads : facts_.group) {
    if (threads == 0) return "expected the size of a group, found none";
  }
  for (const auto& [binding, bytes] : buffers_) {
    if (binding != facts_.buffers.size())
      return "expected bindings from 0 on, found " + std::to_string(binding);
    facts_.buffers.push_back(bytes);
  }
  return "";
}

}  // namespace

std::string ReadKernel(const uint32_t* words, size_t count, KernelFacts* facts) {
  return Reader(words, count, facts).Read();
}

}  // namespace tilewright::vulkan
