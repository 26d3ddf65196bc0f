// The table of passes, and which of them a target runs in what order.
#include <algorithm>

#include "compiler/transform/passes.h"

namespace tilewright::transform {
namespace {

constexpr PassRow kLowerBlocks{"lower_blocks", LowerBlocks};
constexpr PassRow kCompactBuffers{"compact_buffers", CompactBuffers};
constexpr PassRow kLocalSums{"local_sums", LocalSums};
constexpr PassRow kSimplify{"simplify", SimplifyFunction};
constexpr PassRow kDropGuards{"drop_guards", DropGuards};
constexpr PassRow kPartitionLoops{"partition_loops", PartitionLoops};
constexpr PassRow kHoistOpenBuffers{"hoist_open_buffers", HoistOpenBuffers};
constexpr PassRow kFlattenBuffers{"flatten_buffers", FlattenBuffers};
constexpr PassRow kLowerTensorNests{"lower_tensor_nests", LowerTensorNests};
constexpr PassRow kVectorizeLoops{"vectorize_loops", VectorizeLoops};
constexpr PassRow kUnrollLoops{"unroll_loops", UnrollLoops};
constexpr PassRow kDropMasks{"drop_masks", DropMasks};
constexpr PassRow kDropZeroTerms{"drop_zero_terms", DropZeroTerms};
constexpr PassRow kNarrowArithmetic{"narrow_arithmetic", NarrowArithmetic};
constexpr PassRow kContractFma{"contract_fma", ContractFma};
constexpr PassRow kKeepSums{"keep_sums", KeepSums};
constexpr PassRow kPrefetchConstants{"prefetch_constants", PrefetchConstants};
constexpr PassRow kSumInBlocks{"sum_in_blocks", SumInBlocks};

// Buffers are flattened before loops are vectorised: an index split by a fused loop, like (f / 20)
// * 20 + f % 20, is only contiguous once its dimensions are one. Vectors come before unrolling,
// which replicates them.
constexpr PassRow kCpu[] = {
    kLowerBlocks,      kCompactBuffers,   kLocalSums,      kSimplify,          kDropGuards,
    kPartitionLoops,   kHoistOpenBuffers, kFlattenBuffers, kSimplify,          kLowerTensorNests,
    kVectorizeLoops,   kUnrollLoops,      kSimplify,       kDropMasks,         kDropZeroTerms,
    kNarrowArithmetic, kContractFma,      kKeepSums,       kPrefetchConstants, kSumInBlocks,
};
// Pipelines and virtual threads while thread loops are still loops like others; private buffers are
// compacted again once each thread has its own.
constexpr PassRow kMarkDoubleBuffers{"mark_double_buffers", MarkDoubleBuffers};
constexpr PassRow kInjectSoftwarePipeline{"inject_software_pipeline", InjectSoftwarePipeline};
constexpr PassRow kInjectVirtualThreads{"inject_virtual_threads", InjectVirtualThreads};
constexpr PassRow kMergeLaunches{"merge_launches", MergeLaunches};
constexpr PassRow kShareTiles{"share_tiles", ShareTiles};
constexpr PassRow kMergeThreads{"merge_threads", MergeThreads};
constexpr PassRow kPruneSync{"prune_sync", PruneSync};
constexpr PassRow kGpu[] = {
    kMarkDoubleBuffers,    kLowerBlocks, kCompactBuffers,   kInjectSoftwarePipeline,
    kInjectVirtualThreads, kSimplify,    kMergeLaunches,    kShareTiles,
    kMergeThreads,         kSimplify,    kCompactBuffers,   kPruneSync,
    kFlattenBuffers,       kSimplify,    kLowerTensorNests, kVectorizeLoops,
    kUnrollLoops,          kSimplify,    kNarrowArithmetic, kContractFma,
};
// Which buffers have two versions is known of blocks only.
constexpr PassRow kToLoops[] = {kMarkDoubleBuffers, kLowerBlocks, kCompactBuffers, kLocalSums,
                                kSimplify};

}  // namespace

std::span<const PassRow> CpuPipeline() { return kCpu; }
std::span<const PassRow> GpuPipeline() { return kGpu; }

const PassRow* FindPass(std::string_view name) {
  for (std::span<const PassRow> table : {CpuPipeline(), GpuPipeline()}) {
    auto row =
        std::find_if(table.begin(), table.end(), [&](const PassRow& r) { return r.name == name; });
    if (row != table.end()) return &*row;
  }
  return nullptr;
}

absl::StatusOr<Function> LowerToLoops(const Function& f, const PassContext& ctx) {
  return RunPipeline(f, kToLoops, ctx);
}

}  // namespace tilewright::transform
