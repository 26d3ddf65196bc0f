#include "compiler/driver/launch_writer.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/buffer_bytes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::driver {

using support::StrCat;

absl::StatusOr<module::Tensor> TensorOf(const op::TensorType& type, module::TensorKind kind,
                                        int64_t id) {
  module::Tensor tensor;
  tensor.id = id;
  TW_ASSIGN(tensor.dtype, ModuleDType(type.dtype));
  tensor.shape = type.shape;
  tensor.kind = kind;
  if (type.fixed()) tensor.bytes = type.bytes();  // SetNeedsAtMaxima knows the others
  return tensor;
}

int64_t RoundUp(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

LaunchWriter::LaunchWriter(const std::vector<CodePart>& parts, int64_t alignment,
                           module::Manifest* manifest)
    : parts_(parts), alignment_(alignment), manifest_(*manifest) {
  scratch_ = RoundUp(manifest_.arena_bytes, alignment_);
  int64_t objects = 0;
  for (const CodePart& part : parts_) {
    object_.push_back(objects);
    objects += part.code.programs.empty() ? 0 : 1;
    for (const codegen::Program& program : part.code.programs) {
      const int64_t bytes = ScratchBytes(program);
      if (bytes > 0) manifest_.arena_bytes = std::max(manifest_.arena_bytes, scratch_ + bytes);
    }
  }
}

int64_t LaunchWriter::ScratchBytes(const codegen::Program& program) const {
  int64_t bytes = 0;
  for (const ir::Buffer& b : program.temporaries)
    bytes += RoundUp(*ir::ConstantBytes(*b), alignment_);
  return bytes;
}

absl::StatusOr<std::vector<module::Launch>> LaunchWriter::Launches(
    size_t part, int index, const std::vector<int64_t>& params, const Scratch& scratch,
    const module::Launch& about) {
  const codegen::Program& program = parts_[part].code.programs[static_cast<size_t>(index)];
  std::vector<int64_t> tensors = params;
  TW_TRY(AddTemporaries(program, about.name, scratch, &tensors));
  std::vector<module::Launch> launches;
  for (const codegen::Call& call : program.calls) {
    module::Launch& launch = launches.emplace_back();
    if (launches.size() == program.calls.size()) launch = about;
    launch.name = about.name;
    launch.task = about.task;
    launch.symbol = call.symbol;
    launch.code = object_[part];
    launch.grid = call.grid;
    launch.group = call.group;
    for (int buffer : call.buffers) launch.args.push_back(tensors[static_cast<size_t>(buffer)]);
    launch.num_outputs = call.num_outputs;
    launch.workspace_bytes = program.workspace_bytes;
    launch.sizes = about.sizes;
  }
  return launches;
}

absl::StatusOr<std::vector<int64_t>> LaunchWriter::Prepare(size_t part,
                                                           const PreparedKernel& prepared,
                                                           const std::vector<int64_t>& inputs,
                                                           const std::string& name,
                                                           module::Function* function) {
  if (prepared.program < 0) return std::vector<int64_t>();
  std::vector<int64_t> reads;
  for (size_t i : prepared.reads) reads.push_back(inputs[i]);
  const auto [known, fresh] = prepared_.try_emplace({part, prepared.program, reads});
  Prepared& made = known->second;
  if (fresh) {
    TW_ASSIGN(made, MakePrepared(part, prepared, reads, name));
  }
  if (made.function != function->name) {
    function->prepare.insert(function->prepare.end(), made.launches.begin(), made.launches.end());
    made.function = function->name;
  }
  return made.tensors;
}

absl::StatusOr<LaunchWriter::Prepared> LaunchWriter::MakePrepared(size_t part,
                                                                  const PreparedKernel& prepared,
                                                                  const std::vector<int64_t>& reads,
                                                                  const std::string& name) {
  Prepared made;
  // In a module of open sizes they have a region of their own.
  int64_t& end = manifest_.open_sizes() ? prepared_end_ : manifest_.arena_bytes;
  for (const op::TensorType& type : prepared.tensors) {
    const int64_t offset = RoundUp(end, alignment_);
    TW_ASSIGN(const int64_t id,
              AddTensor(type, module::TensorKind::kPrepared, offset, StrCat(name, ".prepared")));
    end = offset + type.bytes();
    made.tensors.push_back(id);
  }
  std::vector<int64_t> params = reads;
  params.insert(params.end(), made.tensors.begin(), made.tensors.end());
  module::Launch about;
  about.name = StrCat("prepare ", name);
  // Nothing else is in the arena while they run.
  TW_ASSIGN(made.launches, Launches(part, prepared.program, params, ScratchBehind(0), about));
  return made;
}

absl::StatusOr<int64_t> LaunchWriter::AddTensor(const op::TensorType& type, module::TensorKind kind,
                                                int64_t offset, const std::string& name) {
  TW_ASSIGN(module::Tensor tensor,
            TensorOf(type, kind, static_cast<int64_t>(manifest_.tensors.size())));
  tensor.name = StrCat(name, tensor.id);
  tensor.offset = offset;
  manifest_.tensors.push_back(std::move(tensor));
  return manifest_.tensors.back().id;
}

Scratch LaunchWriter::ScratchBehind(int64_t arena_bytes) const {
  // Without size variables one place serves all functions, in front of prepared tensors.
  return {manifest_.open_sizes() ? RoundUp(arena_bytes, alignment_) : scratch_};
}

absl::Status LaunchWriter::AddTemporaries(const codegen::Program& program, const std::string& name,
                                          const Scratch& scratch, std::vector<int64_t>* tensors) {
  int64_t offset = scratch.offset;
  std::vector<int64_t> below = scratch.below;
  const bool moves = !below.empty();
  for (const ir::Buffer& buffer : program.temporaries) {
    op::TensorType type{buffer->dtype, {}};
    for (const ir::Expr& extent : buffer->shape) type.shape.push_back(*ir::AsInt(extent));
    TW_ASSIGN(const int64_t id,
              AddTensor(type, module::TensorKind::kIntermediate, moves ? 0 : offset,
                        StrCat(name, ".", buffer->name, ".")));
    tensors->push_back(id);
    offset += RoundUp(type.bytes(), alignment_);
    if (!moves) continue;
    manifest_.tensors.back().after = below;
    below = {id};
  }
  return absl::OkStatus();
}

}  // namespace tilewright::driver
