// libFuzzer entry for the schedule text: whatever parses prints, parses again to the same steps,
// and is applied or refused, never a crash; what was applied verifies.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/build.h"
#include "compiler/ir/verify.h"
#include "compiler/schedule/schedule.h"
#include "deploy/support/status.h"

namespace {

using tilewright::ir::Int;
namespace ir = tilewright::ir;

// Two stages, a reduction and its epilogue, small enough that every step is quick.
ir::Function Program() {
  ir::FunctionBuilder b("dense_relu");
  ir::Buffer x = b.Input("X", ir::kF32, {Int(6), Int(8)});
  ir::Buffer w = b.Input("W", ir::kF32, {Int(8), Int(5)});
  ir::Axis k = b.ReduceAxis("k", Int(8));
  ir::Buffer y = b.Reduce("Y", ir::kF32, {Int(6), Int(5)}, {"i", "j"}, {k}, ir::Combiner::kSum,
                          [&](const std::vector<ir::Var>& i) {
                            return ir::Load(x, {i[0], k.var}) * ir::Load(w, {k.var, i[1]});
                          });
  ir::Buffer z =
      b.Compute("Z", ir::kF32, {Int(6), Int(5)}, {"i", "j"}, [&](const std::vector<ir::Var>& i) {
        return ir::Max(ir::Load(y, {i[0], i[1]}), ir::Float(0));
      });
  return b.Finish({z});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace schedule = tilewright::schedule;
  auto steps = schedule::ParseSteps({reinterpret_cast<const char*>(data), size});
  if (!steps.ok()) return 0;
  std::string text = schedule::ToText(*steps);
  auto again = schedule::ParseSteps(text);
  TW_CHECK(again.ok()) << again.status() << "\n" << text;
  TW_CHECK(schedule::ToText(*again) == text) << text;
  static const ir::Function program = Program();
  schedule::Schedule s(program);
  constexpr size_t kMostSteps = 24;  // loops multiply: more of them are slow, not wrong
  for (size_t i = 0; i < steps->size() && i < kMostSteps; ++i) (void)s.Apply((*steps)[i]);
  absl::Status valid = ir::Verify(s.function());
  TW_CHECK(valid.ok()) << valid << "\n" << text;
  return 0;
}
