#include "deploy/runtime/vulkan_pipeline.h"

#include <algorithm>
#include <cstring>
#include <spirv/unified1/spirv.hpp11>

#include "deploy/runtime/spirv_abi.h"

namespace tilewright::vulkan {
namespace {

constexpr size_t kMostBuffers = 32;  // of a kernel, so that a batch has room for its commands
// A pipeline takes a driver milliseconds: launches of the same sizes in a row before they get one,
// and how many sizes of a kernel do.
constexpr int kLaunchesBeforeOwn = 16;
constexpr size_t kMostOwn = 4;

std::string FeatureOf(uint32_t capability) {
#define X(feature, name) \
  if (capability == static_cast<uint32_t>(spv::Capability::name)) return "feature " #feature;
  TW_SPIRV_FEATURES(X)
#undef X
  return "capability " + std::to_string(capability);
}

void Dispatch(const Context& context, VkCommandBuffer commands, const int64_t* grid) {
  const uint32_t* most = context.limits().maxComputeWorkGroupCount;
  int64_t at[3];
  uint32_t count[3];
  const auto part = [&](int axis) {
    count[axis] = static_cast<uint32_t>(std::min<int64_t>(most[axis], grid[axis] - at[axis]));
  };
  for (at[2] = 0; at[2] < grid[2]; at[2] += most[2]) {
    part(2);
    for (at[1] = 0; at[1] < grid[1]; at[1] += most[1]) {
      part(1);
      for (at[0] = 0; at[0] < grid[0]; at[0] += most[0]) {
        part(0);
        context.api().CmdDispatchBase(commands, static_cast<uint32_t>(at[0]),
                                      static_cast<uint32_t>(at[1]), static_cast<uint32_t>(at[2]),
                                      count[0], count[1], count[2]);
      }
    }
  }
}

}  // namespace

std::string Pipeline::Lacking(const Context& context) const {
  const VkPhysicalDeviceLimits& limits = context.limits();
  const auto beyond = [](const char* what, int64_t most, int64_t found) {
    return "expected at most " + std::to_string(most) + " " + what + ", found " +
           std::to_string(found);
  };
  for (uint32_t capability : facts_.capabilities) {
    if (!context.Runs(capability))
      return "expected what the device has, found " + FeatureOf(capability);
  }
  uint64_t threads = 1;
  for (size_t axis = 0; axis < 3; ++axis) {
    threads = std::min<uint64_t>(threads * facts_.group[axis], uint64_t{1} << 32);
    if (facts_.group[axis] > limits.maxComputeWorkGroupSize[axis])
      return beyond("threads along an axis", limits.maxComputeWorkGroupSize[axis],
                    facts_.group[axis]);
  }
  if (threads > limits.maxComputeWorkGroupInvocations)
    return beyond("threads", limits.maxComputeWorkGroupInvocations, static_cast<int64_t>(threads));
  if (facts_.shared_bytes > limits.maxComputeSharedMemorySize)
    return beyond("bytes of shared memory", limits.maxComputeSharedMemorySize, facts_.shared_bytes);
  const size_t most = std::min<size_t>(limits.maxPerStageDescriptorStorageBuffers, kMostBuffers);
  if (facts_.buffers.size() > most)
    return beyond("buffers", static_cast<int64_t>(most),
                  static_cast<int64_t>(facts_.buffers.size()));
  for (int64_t bytes : facts_.buffers) {
    if (bytes > limits.maxStorageBufferRange)
      return beyond("bytes of a buffer", limits.maxStorageBufferRange, bytes);
  }
  if (facts_.size_bytes > limits.maxPushConstantsSize)
    return beyond("bytes of sizes", limits.maxPushConstantsSize, facts_.size_bytes);
  if (loops_ > context.most_loops()) {
    return "expected loops that end within " + std::to_string(context.most_loops()) +
           " iterations of a thread, where this driver leaves them, found more";
  }
  return "";
}

VkResult Pipeline::MakeLayouts(const Context& context) {
  std::vector<VkDescriptorSetLayoutBinding> bindings(facts_.buffers.size());
  for (uint32_t i = 0; i < bindings.size(); ++i) {
    bindings[i] = {i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr};
  }
  VkDescriptorSetLayoutCreateInfo set = {};
  set.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
  set.bindingCount = static_cast<uint32_t>(bindings.size());
  set.pBindings = bindings.data();
  const VkDevice vulkan = context.device();
  const VkResult code = context.api().CreateDescriptorSetLayout(vulkan, &set, nullptr, &set_);
  if (code != VK_SUCCESS) return code;
  const VkPushConstantRange sizes = {VK_SHADER_STAGE_COMPUTE_BIT, 0,
                                     static_cast<uint32_t>(facts_.size_bytes)};
  VkPipelineLayoutCreateInfo layout = {};
  layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  layout.setLayoutCount = 1;
  layout.pSetLayouts = &set_;
  layout.pushConstantRangeCount = facts_.size_bytes > 0 ? 1 : 0;
  layout.pPushConstantRanges = &sizes;
  return context.api().CreatePipelineLayout(vulkan, &layout, nullptr, &layout_);
}

VkResult Pipeline::Make(const Context& context, VkPipelineCache cache) {
  const VkResult code = layout_ != VK_NULL_HANDLE ? VK_SUCCESS : MakeLayouts(context);
  if (code != VK_SUCCESS) return code;
  cache_ = cache;
  return Create(context, {}, &pipeline_);
}

VkResult Pipeline::Create(const Context& context, const Sizes& sizes, VkPipeline* pipeline) const {
  const DeviceApi& api = context.api();
  const VkDevice vulkan = context.device();
  VkShaderModuleCreateInfo shader = {};
  shader.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  shader.codeSize = words_.size() * sizeof(uint32_t);
  shader.pCode = words_.data();
  VkShaderModule module = VK_NULL_HANDLE;
  VkResult code = api.CreateShaderModule(vulkan, &shader, nullptr, &module);
  if (code != VK_SUCCESS) return code;
  std::vector<VkSpecializationMapEntry> entries(sizes.size());
  for (uint32_t i = 0; i < entries.size(); ++i)
    entries[i] = {i, static_cast<uint32_t>(i * sizeof(int64_t)), sizeof(int64_t)};
  const VkSpecializationInfo constants = {static_cast<uint32_t>(entries.size()), entries.data(),
                                          sizes.size() * sizeof(int64_t), sizes.data()};
  VkComputePipelineCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.flags = VK_PIPELINE_CREATE_DISPATCH_BASE;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = facts_.name.c_str();
  if (!sizes.empty()) info.stage.pSpecializationInfo = &constants;
  info.layout = layout_;
  code = api.CreateComputePipelines(vulkan, cache_, 1, &info, nullptr, pipeline);
  api.DestroyShaderModule(vulkan, module, nullptr);
  return code;
}

void Pipeline::Destroy(const Context& context) {
  const DeviceApi& api = context.api();
  for (const auto& [sizes, pipeline] : of_sizes_) {
    if (pipeline != VK_NULL_HANDLE) api.DestroyPipeline(context.device(), pipeline, nullptr);
  }
  if (pipeline_ != VK_NULL_HANDLE) api.DestroyPipeline(context.device(), pipeline_, nullptr);
  if (layout_ != VK_NULL_HANDLE) api.DestroyPipelineLayout(context.device(), layout_, nullptr);
  if (set_ != VK_NULL_HANDLE) api.DestroyDescriptorSetLayout(context.device(), set_, nullptr);
}

VkPipeline Pipeline::PipelineFor(const Context& context, const int64_t* sizes) {
  if (!facts_.specialises) return pipeline_;
  const Sizes these(sizes, sizes + facts_.size_bytes / static_cast<int64_t>(sizeof(int64_t)));
  in_a_row_ = these == last_ ? std::min(in_a_row_ + 1, kLaunchesBeforeOwn) : 1;
  last_ = these;
  auto found = of_sizes_.find(these);
  if (found == of_sizes_.end()) {
    if (in_a_row_ < kLaunchesBeforeOwn || of_sizes_.size() >= kMostOwn) return pipeline_;
    VkPipeline own = VK_NULL_HANDLE;
    if (Create(context, these, &own) != VK_SUCCESS) own = VK_NULL_HANDLE;
    found = of_sizes_.emplace(these, own).first;
  }
  return found->second != VK_NULL_HANDLE ? found->second : pipeline_;
}

VkResult Pipeline::Launch(const Context& context, Queue* queue,
                          const std::vector<VkDescriptorBufferInfo>& buffers, const int64_t* sizes,
                          const int64_t* grid) {
  const DeviceApi& api = context.api();
  VkCommandBuffer commands = VK_NULL_HANDLE;
  VkDescriptorSet set = VK_NULL_HANDLE;
  VkResult code = queue->Next(&commands);
  if (code == VK_SUCCESS) code = queue->NewSet(set_, &set);
  if (code != VK_SUCCESS) return code;
  std::vector<VkWriteDescriptorSet> writes(buffers.size());
  for (uint32_t i = 0; i < buffers.size(); ++i) {
    writes[i].sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
    writes[i].dstSet = set;
    writes[i].dstBinding = i;
    writes[i].descriptorCount = 1;
    writes[i].descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    writes[i].pBufferInfo = &buffers[i];
  }
  api.UpdateDescriptorSets(context.device(), static_cast<uint32_t>(writes.size()), writes.data(), 0,
                           nullptr);
  api.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, PipelineFor(context, sizes));
  api.CmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout_, 0, 1, &set, 0,
                            nullptr);
  if (facts_.size_bytes > 0) {
    api.CmdPushConstants(commands, layout_, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                         static_cast<uint32_t>(facts_.size_bytes), sizes);
  }
  Dispatch(context, commands, grid);
  return VK_SUCCESS;
}

std::string ReadList(const void* image, size_t bytes,
                     std::vector<std::unique_ptr<Pipeline>>* kernels) {
  std::vector<uint32_t> words(bytes / sizeof(uint32_t));
  std::memcpy(words.data(), image, words.size() * sizeof(uint32_t));
  if (bytes % sizeof(uint32_t) != 0 || words.empty() || words[0] != TW_SPIRV_MAGIC)
    return "expected a list of SPIR-V modules, found other bytes";
  constexpr size_t kHeader = 2;  // words of a module, cost of its loops
  for (size_t at = 1; at < words.size();) {
    const size_t left = words.size() - at;
    if (left < kHeader || words[at] > left - kHeader)
      return "expected whole modules, found one cut short";
    const size_t count = words[at];
    auto kernel = std::make_unique<Pipeline>();
    kernel->loops_ = words[at + 1];
    const auto first = words.begin() + static_cast<int64_t>(at + kHeader);
    kernel->words_.assign(first, first + static_cast<int64_t>(count));
    const std::string wrong = ReadKernel(kernel->words_.data(), count, &kernel->facts_);
    if (!wrong.empty()) return wrong;
    kernels->push_back(std::move(kernel));
    at += kHeader + count;
  }
  return "";
}

}  // namespace tilewright::vulkan
