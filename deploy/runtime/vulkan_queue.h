// The queue of a device: commands are collected into batches, which the device runs in order. What
// a command writes, the next one sees. One owner, one thread at a time; borrows the context.
#ifndef DEPLOY_RUNTIME_VULKAN_QUEUE_H_
#define DEPLOY_RUNTIME_VULKAN_QUEUE_H_

#include <array>
#include <cstdint>

#include "deploy/runtime/vulkan_context.h"

namespace tilewright::vulkan {

class Queue {
 public:
  explicit Queue(const Context& context) : context_(context), api_(context.api()) {}
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  VkResult Open();

  // Gives the command buffer for one more command, behind all earlier ones.
  VkResult Next(VkCommandBuffer* commands);
  // A set of a layout for a command of the batch at hand: valid until that batch has run.
  VkResult NewSet(VkDescriptorSetLayout layout, VkDescriptorSet* set);
  // Gives the device what was collected; Wait returns when it has run. VK_TIMEOUT: it did not end
  // within kMostWaitNs, and the device is to be given up.
  VkResult Flush();
  VkResult Wait();
  // The device is gone, or its work does not end: nothing waits for it any more.
  bool lost() const { return lost_; }

#ifdef TILEWRIGHT_VULKAN_POOR_DEVICE  // for a test
  static constexpr uint64_t kMostWaitNs = 1'000'000'000;
#else
  static constexpr uint64_t kMostWaitNs = 600'000'000'000;
#endif

 private:
  struct Batch {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    VkDescriptorPool sets = VK_NULL_HANDLE;
    VkFence done = VK_NULL_HANDLE;
    bool running = false;
  };

  VkResult Begin();
  VkResult WaitFor(Batch* batch);

  const Context& context_;
  const DeviceApi& api_;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  std::array<Batch, 3> batches_;
  size_t current_ = 0;    // the one that is collected, if recorded_ > 0
  int64_t recorded_ = 0;  // its commands
  bool lost_ = false;
};

}  // namespace tilewright::vulkan

#endif  // DEPLOY_RUNTIME_VULKAN_QUEUE_H_
