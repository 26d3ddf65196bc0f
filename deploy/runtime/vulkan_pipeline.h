// A kernel of a code object (spirv_abi.h) on a device: what it needs, the pipeline that the driver
// makes of it, and its launches as commands. The owner destroys it before the context.
#ifndef DEPLOY_RUNTIME_VULKAN_PIPELINE_H_
#define DEPLOY_RUNTIME_VULKAN_PIPELINE_H_

#include <cstdint>
#include <map>
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
  // with more groups than the device takes at a time is several commands. Sizes that come many
  // times in a row get a pipeline of their own, in which they are constants: divisions by them, and
  // loops over them, are then the driver's to improve. A few sizes do, the first ones.
  VkResult Launch(const Context& context, Queue* queue,
                  const std::vector<VkDescriptorBufferInfo>& buffers, const int64_t* sizes,
                  const int64_t* grid);

 private:
  friend std::string ReadList(const void* image, size_t bytes,
                              std::vector<std::unique_ptr<Pipeline>>* kernels);
  using Sizes = std::vector<int64_t>;
  VkResult MakeLayouts(const Context& context);
  // `sizes`: empty for any.
  VkResult Create(const Context& context, const Sizes& sizes, VkPipeline* pipeline) const;
  VkPipeline PipelineFor(const Context& context, const int64_t* sizes);

  KernelFacts facts_;
  uint32_t loops_ = 0;  // what the loops of a thread cost
  std::vector<uint32_t> words_;
  VkDescriptorSetLayout set_ = VK_NULL_HANDLE;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipeline pipeline_ = VK_NULL_HANDLE;  // for any sizes
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  std::map<Sizes, VkPipeline> of_sizes_;  // null: the driver did not make it
  Sizes last_;
  int in_a_row_ = 0;
};

// Cuts a code object into kernels. Returns an empty text, or what is wrong.
std::string ReadList(const void* image, size_t bytes,
                     std::vector<std::unique_ptr<Pipeline>>* kernels);

}  // namespace tilewright::vulkan

#endif  // DEPLOY_RUNTIME_VULKAN_PIPELINE_H_
