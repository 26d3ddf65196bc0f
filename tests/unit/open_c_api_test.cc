// Modules of open sizes through the shared library and its C header.
#include <cstring>
#include <string>
#include <vector>

#include "deploy/module/module_writer.h"
#include "deploy/runtime/tilewright.h"
#include "gtest/gtest.h"
#include "tests/unit/module_fixture.h"

namespace {

using tilewright::test::kColumns;
using tilewright::test::kInner;
using tilewright::test::kMostRows;

class OpenCApiTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto bytes = tilewright::module::SerializeModule(tilewright::test::OpenRowsModule());
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    ASSERT_EQ(tw_module_open_memory(bytes->data(), bytes->size(), &module_), TW_STATUS_OK)
        << tw_last_error();
    ASSERT_EQ(tw_session_create(module_, 1, &session_), TW_STATUS_OK) << tw_last_error();
  }
  void TearDown() override {
    tw_session_destroy(session_);
    tw_module_close(module_);
  }
  static DLTensor Tensor(std::vector<float>* values, int64_t* shape) {
    values->resize(static_cast<size_t>(shape[0] * shape[1]), 2.0f);
    DLTensor t{};
    t.data = values->data();
    t.device = {kDLCPU, 0};
    t.ndim = 2;
    t.dtype = {kDLFloat, 32, 1};
    t.shape = shape;
    return t;
  }

  TwModule* module_ = nullptr;
  TwSession* session_ = nullptr;
};

TEST_F(OpenCApiTest, SaysWhatIsOpen) {
  ASSERT_EQ(tw_module_num_size_vars(module_), 1u);
  TwSizeVar var{};
  ASSERT_EQ(tw_module_size_var(module_, 0, &var), TW_STATUS_OK);
  EXPECT_STREQ(var.name, "N");
  EXPECT_EQ(var.min, 1);
  EXPECT_EQ(var.max, kMostRows);
  EXPECT_EQ(tw_module_size_var(module_, 1, &var), TW_STATUS_INVALID_ARGUMENT);
  TwTensorInfo info{};
  ASSERT_EQ(tw_module_input(module_, 0, &info), TW_STATUS_OK);
  EXPECT_EQ(info.shape[0], -1);
  EXPECT_EQ(info.shape[1], kInner);
  EXPECT_EQ(info.bytes, static_cast<size_t>(kMostRows * kInner * 4));
  TwDimInfo dim{};
  ASSERT_EQ(tw_module_output_dim(module_, 0, 0, &dim), TW_STATUS_OK);
  EXPECT_STREQ(dim.text, "N");
  EXPECT_EQ(dim.is_open, 1);
  EXPECT_EQ(dim.min, 1);
  EXPECT_EQ(dim.max, kMostRows);
  ASSERT_EQ(tw_module_input_dim(module_, 0, 1, &dim), TW_STATUS_OK);
  EXPECT_EQ(dim.is_open, 0);
  EXPECT_EQ(dim.min, kInner);
  EXPECT_EQ(tw_module_input_dim(module_, 0, 2, &dim), TW_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(tw_module_input_dim(module_, 0, -1, &dim), TW_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(tw_module_input_dim(module_, 1, 0, &dim), TW_STATUS_INVALID_ARGUMENT);
}

TEST_F(OpenCApiTest, CallsOfEverySize) {
  for (int64_t rows : {7, 33, 1, 4, 8}) {
    int64_t in_shape[] = {rows, kInner}, out_shape[] = {0, 0};
    std::vector<float> in, out;
    const DLTensor x = Tensor(&in, in_shape);
    const DLTensor* inputs[] = {&x};
    ASSERT_EQ(tw_module_output_shape(module_, inputs, 1, 0, out_shape, 2), TW_STATUS_OK)
        << tw_last_error();
    EXPECT_EQ(out_shape[0], rows);
    EXPECT_EQ(out_shape[1], kColumns);
    const DLTensor y = Tensor(&out, out_shape);
    const DLTensor* outputs[] = {&y};
    ASSERT_EQ(tw_session_call(session_, inputs, 1, outputs, 1), TW_STATUS_OK) << tw_last_error();
    EXPECT_EQ(out, tilewright::test::OpenRowsReference(in));
  }
}

TEST_F(OpenCApiTest, WrongShapesAreErrors) {
  int64_t in_shape[] = {34, kInner}, out_shape[] = {0, 0};
  std::vector<float> in;
  const DLTensor x = Tensor(&in, in_shape);
  const DLTensor* inputs[] = {&x};
  EXPECT_EQ(tw_module_output_shape(module_, inputs, 1, 0, out_shape, 2),
            TW_STATUS_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tw_last_error()).find("dimension 0 (N): expected 1 to 33, found 34"),
            std::string::npos)
      << tw_last_error();
  in_shape[0] = 3;
  EXPECT_EQ(tw_module_output_shape(module_, inputs, 1, 0, out_shape, 1),
            TW_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(tw_module_output_shape(module_, inputs, 1, 1, out_shape, 2),
            TW_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(tw_module_output_shape(module_, inputs, 0, 0, out_shape, 2),
            TW_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(tw_module_output_shape(module_, nullptr, 1, 0, out_shape, 2),
            TW_STATUS_INVALID_ARGUMENT);
}

TEST_F(OpenCApiTest, StepsWithAShape) {
  int64_t shape[] = {5, kInner};
  std::vector<float> in;
  Tensor(&in, shape);
  EXPECT_EQ(tw_session_set_input_bytes(session_, 0, in.data(), in.size() * 4),
            TW_STATUS_INVALID_ARGUMENT)
      << "the smallest size until it is set";
  EXPECT_EQ(tw_session_set_input_shape(session_, 0, nullptr, 2), TW_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(tw_session_set_input_shape(session_, 0, shape, 1), TW_STATUS_INVALID_ARGUMENT);
  ASSERT_EQ(tw_session_set_input_shape(session_, 0, shape, 2), TW_STATUS_OK) << tw_last_error();
  ASSERT_EQ(tw_session_set_input_bytes(session_, 0, in.data(), in.size() * 4), TW_STATUS_OK);
  ASSERT_EQ(tw_session_run(session_), TW_STATUS_OK) << tw_last_error();
  DLTensor y{};
  ASSERT_EQ(tw_session_get_output(session_, 0, &y), TW_STATUS_OK);
  ASSERT_EQ(y.ndim, 2);
  EXPECT_EQ(y.shape[0], 5);
  const std::vector<float> expected = tilewright::test::OpenRowsReference(in);
  EXPECT_EQ(std::memcmp(y.data, expected.data(), expected.size() * 4), 0);
}

TEST(StateCApiTest, LengthAndReset) {
  const auto bytes = tilewright::module::SerializeModule(tilewright::test::ColumnSumsModule());
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  TwModule* module = nullptr;
  TwSession* session = nullptr;
  ASSERT_EQ(tw_module_open_memory(bytes->data(), bytes->size(), &module), TW_STATUS_OK);
  ASSERT_EQ(tw_session_create(module, 1, &session), TW_STATUS_OK) << tw_last_error();
  int64_t length = -1, most = -1;
  ASSERT_EQ(tw_session_state_length(session, &length, &most), TW_STATUS_OK);
  EXPECT_EQ(length, 0);
  EXPECT_EQ(most, tilewright::test::kMostEntries);
  std::vector<float> values(3 * kColumns, 1), sums(kColumns);
  int64_t shape[] = {3, kColumns}, out_shape[] = {kColumns};
  DLTensor x{values.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
  DLTensor y{sums.data(), {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, out_shape, nullptr, 0};
  const DLTensor *inputs[] = {&x}, *outputs[] = {&y};
  int64_t of_output = 0;
  EXPECT_EQ(tw_module_output_shape(module, inputs, 1, 0, &of_output, 1), TW_STATUS_OK);
  for (int run = 1; run <= 6; ++run) {
    ASSERT_EQ(tw_session_call(session, inputs, 1, outputs, 1), TW_STATUS_OK) << tw_last_error();
    EXPECT_EQ(sums[0], 6.0F * static_cast<float>(run));
  }
  EXPECT_EQ(tw_session_call(session, inputs, 1, outputs, 1), TW_STATUS_RESOURCE_EXHAUSTED);
  EXPECT_NE(std::string(tw_last_error()).find("runtime.session.state_full"), std::string::npos);
  ASSERT_EQ(tw_session_state_length(session, &length, nullptr), TW_STATUS_OK);
  EXPECT_EQ(length, 18);
  EXPECT_EQ(tw_session_reset_state(session, 19), TW_STATUS_INVALID_ARGUMENT);
  ASSERT_EQ(tw_session_reset_state(session, 3), TW_STATUS_OK);
  ASSERT_EQ(tw_session_call(session, inputs, 1, outputs, 1), TW_STATUS_OK) << tw_last_error();
  EXPECT_EQ(sums[0], 12);
  EXPECT_EQ(tw_session_state_length(nullptr, &length, &most), TW_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(tw_session_reset_state(nullptr, 0), TW_STATUS_INVALID_ARGUMENT);
  tw_session_destroy(session);
  tw_module_close(module);
}

}  // namespace
