#include "deploy/runtime/vulkan_queue.h"

namespace tilewright::vulkan {
namespace {

// Of a batch: enough that giving it to the device costs little, few enough that the device starts
// early.
constexpr int64_t kMostCommands = 128;
constexpr uint32_t kMostBuffers = 4096;  // of all commands of a batch

constexpr VkPipelineStageFlags kWork =
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkAccessFlags kWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags kReads = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;

void OrderMemory(const DeviceApi& api, VkCommandBuffer commands, VkPipelineStageFlags later,
                 VkAccessFlags accesses) {
  VkMemoryBarrier barrier = {};
  barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  barrier.srcAccessMask = kWrites;
  barrier.dstAccessMask = accesses;
  api.CmdPipelineBarrier(commands, kWork, later, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

}  // namespace

VkResult Queue::Open() {
  VkCommandPoolCreateInfo pool = {};
  pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  pool.queueFamilyIndex = context_.queue_family();
  VkResult result = api_.CreateCommandPool(context_.device(), &pool, nullptr, &pool_);
  for (Batch& batch : batches_) {
    VkCommandBufferAllocateInfo buffer = {};
    buffer.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
    buffer.commandPool = pool_;
    buffer.commandBufferCount = 1;
    if (result == VK_SUCCESS)
      result = api_.AllocateCommandBuffers(context_.device(), &buffer, &batch.commands);
    VkFenceCreateInfo fence = {};
    fence.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
    if (result == VK_SUCCESS)
      result = api_.CreateFence(context_.device(), &fence, nullptr, &batch.done);
    const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, kMostBuffers};
    VkDescriptorPoolCreateInfo sets = {};
    sets.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
    sets.maxSets = static_cast<uint32_t>(kMostCommands);
    sets.poolSizeCount = 1;
    sets.pPoolSizes = &size;
    if (result == VK_SUCCESS)
      result = api_.CreateDescriptorPool(context_.device(), &sets, nullptr, &batch.sets);
  }
  return result;
}

Queue::~Queue() {
  for (Batch& batch : batches_) {
    if (batch.done != VK_NULL_HANDLE) api_.DestroyFence(context_.device(), batch.done, nullptr);
    if (batch.sets != VK_NULL_HANDLE)
      api_.DestroyDescriptorPool(context_.device(), batch.sets, nullptr);
  }
  if (pool_ != VK_NULL_HANDLE) api_.DestroyCommandPool(context_.device(), pool_, nullptr);
}

VkResult Queue::WaitFor(Batch* batch) {
  if (lost_) return VK_ERROR_DEVICE_LOST;
  if (!batch->running) return VK_SUCCESS;
  VkResult result = api_.WaitForFences(context_.device(), 1, &batch->done, VK_TRUE, kMostWaitNs);
  lost_ = result == VK_TIMEOUT || result == VK_ERROR_DEVICE_LOST;
  if (result != VK_SUCCESS) return result;
  batch->running = false;
  result = api_.ResetFences(context_.device(), 1, &batch->done);
  if (result == VK_SUCCESS) result = api_.ResetDescriptorPool(context_.device(), batch->sets, 0);
  return result;
}

// The oldest batch is the next to be filled.
VkResult Queue::Begin() {
  Batch& batch = batches_[current_];
  VkResult result = WaitFor(&batch);
  if (result == VK_SUCCESS) result = api_.ResetCommandBuffer(batch.commands, 0);
  VkCommandBufferBeginInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  if (result == VK_SUCCESS) result = api_.BeginCommandBuffer(batch.commands, &info);
  return result;
}

VkResult Queue::Next(VkCommandBuffer* commands) {
  if (lost_) return VK_ERROR_DEVICE_LOST;
  if (recorded_ == kMostCommands) {
    const VkResult result = Flush();
    if (result != VK_SUCCESS) return result;
  }
  if (recorded_ == 0) {
    const VkResult result = Begin();
    if (result != VK_SUCCESS) return result;
  }
  ++recorded_;
  *commands = batches_[current_].commands;
  // Behind the batches before this one, too.
  OrderMemory(api_, *commands, kWork, kReads | kWrites);
  return VK_SUCCESS;
}

VkResult Queue::NewSet(VkDescriptorSetLayout layout, VkDescriptorSet* set) {
  VkDescriptorSetAllocateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
  info.descriptorPool = batches_[current_].sets;
  info.descriptorSetCount = 1;
  info.pSetLayouts = &layout;
  return api_.AllocateDescriptorSets(context_.device(), &info, set);
}

VkResult Queue::Flush() {
  if (recorded_ == 0) return VK_SUCCESS;
  Batch& batch = batches_[current_];
  recorded_ = 0;
  current_ = (current_ + 1) % batches_.size();
  OrderMemory(api_, batch.commands, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
  VkResult result = api_.EndCommandBuffer(batch.commands);
  if (result != VK_SUCCESS) return result;
  VkSubmitInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  info.commandBufferCount = 1;
  info.pCommandBuffers = &batch.commands;
  result = api_.QueueSubmit(context_.queue(), 1, &info, batch.done);
  batch.running = result == VK_SUCCESS;
  lost_ = result == VK_ERROR_DEVICE_LOST;
  return result;
}

VkResult Queue::Wait() {
  if (lost_) return VK_ERROR_DEVICE_LOST;
  VkResult result = Flush();
  for (Batch& batch : batches_) {
    if (result == VK_SUCCESS) result = WaitFor(&batch);
  }
  return result;
}

}  // namespace tilewright::vulkan
