// A kernel of a code object (spirv_abi.h) on a device: what it needs, the pipeline that the driver
// makes of it, and its launches as commands. The owner destroys it before the context.
#ifndef DEPLOY_RUNTIME_VULKAN_PIPELINE_H_
#define DEPLOY_RUNTIME_VULKAN_PIPELINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "deploy/runtime/vulkan_context.h"
#include "deploy/runtime/vulkan_kernel.h"
#include "deploy/runtime/vulkan_queue.h"

namespace tilewright::vulkan {

class Pipeline {
 public:
  const KernelFacts& facts() const { return facts_; }
  bool made() const { return pipeline_ != VK_NULL_HANDLE; }

  // Says what the device lacks of what the kernel needs; empty: nothing.
  std::string Lacking(const Context& context) const;
  // REQUIRES: the device lacks nothing.
  VkResult Make(const Context& context, VkPipelineCache cache);
  void Destroy(const Context& context);

  // One launch. `buffers` are those of the facts, `sizes` has as many bytes as they say. A launch
  // with more groups than the device takes at a time is several commands.
  VkResult Launch(const Context& context, Queue* queue,
                  const std::vector<VkDescriptorBufferInfo>& buffers, const int64_t* sizes,
                  const int64_t* grid) const;

 private:
  friend std::string ReadList(const void* image, size_t bytes,
                              std::vector<std::unique_ptr<Pipeline>>* kernels);
  VkResult MakeLayouts(const Context& context);

  KernelFacts facts_;
  uint32_t loops_ = 0;  // what the loops of a thread cost
  std::vector<uint32_t> words_;
  VkDescriptorSetLayout set_ = VK_NULL_HANDLE;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipeline pipeline_ = VK_NULL_HANDLE;
};

// Cuts a code object into kernels. Returns an empty text, or what is wrong.
std::string ReadList(const void* image, size_t bytes,
                     std::vector<std::unique_ptr<Pipeline>>* kernels);

}  // namespace tilewright::vulkan

#endif  // DEPLOY_RUNTIME_VULKAN_PIPELINE_H_
