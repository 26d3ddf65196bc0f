#!/usr/bin/env python3
"""Plants violations in a small tree and expects each lint check to find them, and nothing else."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import check_size
import source_files

HERE = os.path.dirname(os.path.abspath(__file__))

CLEAN = {
    "deploy/support/README.md": "# support, see `status.h`\n",
    "deploy/support/CMakeLists.txt": "tw_library(tilewright_support SRCS status.cc)\n",
    "deploy/support/status.h": "#pragma once\nnamespace a {\nint F();\n}  // namespace a\n",
    "deploy/support/status.cc": '#include "deploy/support/status.h"\n\n'
                                "namespace a {\nint F() { return 1; }\n}  // namespace a\n",
    "compiler/ir/README.md": "# ir\n",
    "compiler/ir/ir.h": '#pragma once\n#include <string>\n\n#include "deploy/support/status.h"\n',
    "compiler/op/README.md": "# op\n",
    "compiler/op/op.h": '#pragma once\n#include "compiler/ir/ir.h"\n',
}


class LintTest(unittest.TestCase):

    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="lint-test-")
        for path, text in CLEAN.items():
            self.put(path, text)

    def tearDown(self):
        shutil.rmtree(self.root)

    def put(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def run_check(self, name):
        result = subprocess.run([sys.executable, os.path.join(HERE, name), self.root],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                universal_newlines=True, check=False)
        self.assertIn(result.returncode, (0, 1), result.stdout)
        return result.returncode, result.stdout

    def expect_finding(self, check, *parts):
        code, output = self.run_check(check)
        self.assertEqual(code, 1, output)
        for part in parts:
            self.assertIn(part, output)
        self.assertIn("1 findings", output)

    def test_rtl(self):
        self.put("vta/isa/vta_isa.sv", "package vta_isa;\nendpackage\n")
        self.put("vta/rtl/CMakeLists.txt", "set(sources ../isa/vta_isa.sv vta_core.sv)\n")
        core = "module vta_core (\n    input logic on,\n    output logic kept\n);\n  always_comb %s;\nendmodule\n"
        self.put("vta/rtl/vta_core.sv", core % "kept = on")
        self.assertEqual(self.run_check("check_rtl.py")[0], 0)
        self.put("vta/rtl/vta_dead.sv", "module vta_dead;\nendmodule\n")
        code, output = self.run_check("check_rtl.py")
        self.assertEqual(code, 1)
        self.assertIn("vta_dead.sv: expected it in vta/rtl/CMakeLists.txt", output)
        os.remove(os.path.join(self.root, "vta/rtl/vta_dead.sv"))
        if shutil.which("verilator") is None:
            return
        self.put("vta/rtl/vta_core.sv", core % "if (on) kept = on")
        code, output = self.run_check("check_rtl.py")
        self.assertEqual(code, 1)
        self.assertIn("LATCH", output)

    def test_clean_tree_passes_everything(self):
        for check in ("check_access.py", "check_layers.py", "check_size.py", "check_docs.py", "check_reference.py",
                      "check_batches.py", "check_options.py"):
            code, output = self.run_check(check)
            self.assertEqual(code, 0, output)

    def test_rpcs_and_rows_that_lack_each_other_are_found(self):
        proto = "package a.v1;\n\nservice S {\n  // rpc Gone(X) returns (X);\n  rpc Do(X) returns (X);\n%s}\n"
        row = '    {"/a.v1.S/%s", kAll, 0, false},\n'
        standard = '    {"/grpc.health.v1.Health/Check", kAll, kAll, false},\n'
        self.put("proto/a/v1/a.proto", proto % "")
        self.put("deploy/security/access.cc", row % "Do" + standard)
        self.assertEqual(self.run_check("check_access.py")[0], 0)
        self.put("proto/a/v1/a.proto", proto % "  rpc More(X) returns (stream X);\n")
        self.expect_finding("check_access.py", "proto/a/v1/a.proto:", "a.v1.S/More")
        self.put("deploy/security/access.cc", row % "Do" + row % "More" + row % "Old")
        self.expect_finding("check_access.py", "deploy/security/access.cc:", "a.v1.S/Old")
        self.put("deploy/security/access.cc", row % "Do" + row % "More" + row % "Do")
        self.expect_finding("check_access.py", "two rows for a.v1.S/Do")

    def test_equal_names_in_one_target_are_found(self):
        self.put("deploy/support/CMakeLists.txt", "tw_library(tilewright_support\n  SRCS\n    a.cc\n    b.cc\n)\n")
        source = "namespace {\n\n%s\n}  // namespace\n"
        self.put("deploy/support/a.cc", source % "struct Plan {\n  int x;  // of it\n};\nint F(int a) { return a; }\n")
        self.put("deploy/support/b.cc", source % "int F(double b) { return 1; }\n")
        self.assertEqual(self.run_check("check_batches.py")[0], 0)
        self.put("deploy/support/b.cc", source % "struct Plan {\n};\n")
        self.expect_finding("check_batches.py", "deploy/support/b.cc", "Plan")
        self.put("deploy/support/b.cc", source % "int F(int other) {\n  return 2;\n}\n")
        self.expect_finding("check_batches.py", "deploy/support/b.cc", "F is also")
        self.put("deploy/support/CMakeLists.txt", "tw_library(tilewright_support\n  SRCS\n    a.cc\n  APART\n    b.cc\n)\n")
        self.assertEqual(self.run_check("check_batches.py")[0], 0)

    def test_a_part_that_depends_on_what_is_installed_is_found(self):
        self.put("CMakeLists.txt", "find_package(absl CONFIG REQUIRED)\n")
        self.assertEqual(self.run_check("check_options.py")[0], 0)
        self.put("CMakeLists.txt", "find_package(absl CONFIG REQUIRED)\nfind_library(TILEWRIGHT_X x)\n")
        self.expect_finding("check_options.py", "CMakeLists.txt:2", "TILEWRIGHT_X")

    def test_a_combination_of_parts_that_does_not_compile_is_found(self):
        parts = ("CLBLAST", "ONEDNN", "OPENBLAS", "XNNPACK")
        self.put("CMakeLists.txt", "".join('option(TILEWRIGHT_BENCH_%s "" OFF)\n' % part for part in parts))
        used = "".join("#ifdef TILEWRIGHT_BENCH_%s\nint %s() { return F(); }\n#endif\n" % (p, p.lower()) for p in parts)
        for part in parts:
            self.put("tests/bench/peer_%s.cc" % part.lower(), "")
        self.put("tests/bench/peers.cc", "int F() { return 1; }\n" + used)
        self.assertEqual(self.run_check("check_options.py")[0], 0)
        self.put("tests/bench/peers.cc", "static int F() { return 1; }\n" + used)  # unused where no part is on
        self.expect_finding("check_options.py", "tests/bench/peers.cc: with no part", "unused")

    def test_arrow_up_is_found_with_its_line(self):
        self.put("compiler/ir/ir.h", '#pragma once\n\n#include "compiler/op/op_kind.h"\n')
        self.put("compiler/op/op_kind.h", "#pragma once\n")
        self.put("compiler/op/op.h", "#pragma once\n")
        self.expect_finding("check_layers.py", "compiler/ir/ir.h:3:",
                            "compiler/ir may not include compiler/op")

    def test_cycle_is_found(self):
        self.put("compiler/ir/ir.h", '#pragma once\n#include "compiler/op/op.h"\n')
        code, output = self.run_check("check_layers.py")
        self.assertEqual(code, 1)
        self.assertIn("folder cycle: compiler/ir -> compiler/op -> compiler/ir", output)

    def test_only_the_named_header_of_a_folder(self):
        self.put("deploy/runtime/c_abi.h", "#pragma once\n")
        self.put("deploy/runtime/runtime.h", "#pragma once\n")
        self.put("compiler/codegen/a.h", '#include "deploy/runtime/c_abi.h"\n')
        self.assertEqual(self.run_check("check_layers.py")[0], 0)
        self.put("compiler/codegen/a.h", '#include "deploy/runtime/runtime.h"\n')
        self.expect_finding("check_layers.py", "compiler/codegen/a.h:1:")

    def test_includes_in_comments_do_not_count(self):
        self.put("compiler/ir/ir.h", '// #include "compiler/op/op.h"\n/*\n'
                                     '#include "compiler/op/op.h"\n*/\n')
        self.assertEqual(self.run_check("check_layers.py")[0], 0)

    def test_libraries_stay_where_they_belong(self):
        for include in ("<llvm/IR/IRBuilder.h>", '"llvm/IR/IRBuilder.h"', "<sqlite3.h>",
                        "<grpcpp/grpcpp.h>", '"absl/log/log.h"'):
            self.put("compiler/op/op.h", "#include %s\n" % include)
            self.expect_finding("check_layers.py", "compiler/op/op.h:1:")

    def test_tests_are_out_of_bounds_and_unknown_folders_have_no_row(self):
        self.put("tests/support/golden.h", "#pragma once\n")
        self.put("compiler/op/op.h", '#include "tests/support/golden.h"\n')
        self.expect_finding("check_layers.py", "product code may not include tests")
        self.put("compiler/op/op.h", "#pragma once\n")
        self.put("compiler/zzz/z.h", "#pragma once\n")
        self.expect_finding("check_layers.py", "no row in LAYERS")

    def test_missing_and_relative_includes(self):
        self.put("compiler/op/op.h", '#include "compiler/op/none.h"\n')
        self.expect_finding("check_layers.py", "no such file")
        self.put("compiler/op/op.h", '#include "ir.h"\n')
        self.expect_finding("check_layers.py", "expected an include from the root")

    def test_long_file_and_long_function(self):
        self.put("compiler/op/op.h", "#pragma once\n" + "// x\n" * 900)
        self.expect_finding("check_size.py", "compiler/op/op.h", "found 901")
        body = "  x = \"}\";  // }\n" * 120
        self.put("compiler/op/op.h", "namespace a {\nclass C {\n  void G() {}\n\n"
                                     "  int F(int x) const {\n%s  }\n};\n}\n" % body)
        self.expect_finding("check_size.py", "compiler/op/op.h:5", "in F, found 122")

    def test_function_sizes_of_tricky_code(self):
        functions = check_size.cpp_functions('''
namespace n {
enum class E : int { kA, kB };
constexpr int kTable[] = {F(1), 2};
struct S : public B<int()> {
  S(int a) : a_{a}, b_(a) {
    if (a) { Use([&] { return 1; }); }
  }
  bool operator==(const S& o) const { return true; }
};
template <typename T>
T Max(
    T a) {
  return R"(}}})", a;
}
}
''')
        self.assertEqual([f[0] for f in functions], ["S", "operator==", "Max"])
        self.assertEqual([f[2] for f in functions], [3, 1, 5])

    def test_missing_readme_and_stale_readme(self):
        os.remove(os.path.join(self.root, "compiler/op/README.md"))
        self.expect_finding("check_docs.py", "compiler/op: expected a README.md")
        self.put("compiler/op/README.md", "see `gone.h` and `ir.h`\n")
        self.expect_finding("check_docs.py", "compiler/op/README.md:1:", "gone.h")

    def test_additions_that_touch_other_files(self):
        self.put("compiler/README.md", "| operator | `relu` | `o.cc`, `t.cc` |\n"
                 "| primitive | `split` | `compiler/schedule/steps.def`, "
                 "`compiler/schedule/primitives.h`, `compiler/schedule/loops.cc`, `t.cc` |\n"
                 "| layout | `OI8i` | `o.cc`, `t.cc` |\n"
                 "| operators | `erode` | `o.cc`, `compiler/op/families.def`, `t.cc` |\n"
                 "| rule | `erode` | `o.cc`, `compiler/op/families.def`, `t.cc` |\n"
                 "| pass | `lower_all` | `compiler/transform/passes.h`, `compiler/transform/p.cc`, "
                 "`compiler/transform/pipelines.cc`, `t.cc`, `u.cc` |\n")
        lower = "StatusOr<Function> LowerAll(const Function& f);\n"
        for path, text in {
                "o.cc": '{"relu", "erode", "OI8i"}\n', "t.cc": "Relu Erode ApplySplit lower_all OI8i\n", "u.cc": "LowerAll\n",
                "compiler/op/families.def": 'TW_FAMILY(Erode, "erode.cc")\n', "compiler/onnx/onnx_ops.cc": '"relu"\n',
                "compiler/graph/fuse.cc": '// "relu"\n"relu6"\n',
                "compiler/schedule/steps.def": 'TW_STEP(Split, "split", "l", "")\n',
                "compiler/schedule/primitives.h": "Status ApplySplit(Schedule& s);\n",
                "compiler/schedule/loops.cc": "Status ApplySplit(Schedule& s) {}\n",
                "compiler/transform/passes.h": lower, "compiler/transform/p.cc": lower,
                "compiler/transform/pipelines.cc":
                    'constexpr PassRow kLowerAll{"lower_all", LowerAll};\n'}.items():
            self.put(path, text)
        code, output = self.run_check("check_additions.py")
        self.assertEqual(code, 0, output)
        self.put("compiler/schedule/other.cc", "Status ApplySplit(Schedule& s) {}\n")
        self.expect_finding("check_additions.py", "ApplySplit: expected one source", "other.cc")
        os.remove(os.path.join(self.root, "compiler/schedule/other.cc"))
        self.put("o.cc", '{"tanh", "erode", "OI8i"}\n')
        self.expect_finding("check_additions.py", "o.cc: expected relu")
        self.put("o.cc", '{"relu", "erode", "OI8i"}\n')
        self.put("compiler/graph/fuse.cc", 'if (node.op == "relu") {\n')
        self.expect_finding("check_additions.py", "compiler/graph/fuse.cc:1: names relu")
        self.put("compiler/graph/fuse.cc", "")
        self.put("compiler/op/dense.cc", '// "OI8i"\nif (layout == "OI8i") {\n')
        self.expect_finding("check_additions.py", "compiler/op/dense.cc:2: names a layout in blocks")

    def test_a_device_whose_name_is_elsewhere(self):
        self.put("deploy/runtime/README.md", "| device | `abacus` | `d/abacus.c`, `d/CMakeLists.txt`, `d/suite.cc` |\n")
        for path in ("d/abacus.c", "d/CMakeLists.txt", "d/suite.cc"):
            self.put(path, "abacus\n")
        self.put("device_agent/agent.cc", "int abacuses;  // as an abacus has\n")
        code, output = self.run_check("check_additions.py")
        self.assertEqual(code, 0, output)
        self.put("device_agent/agent.cc", 'if (kind == "abacus") {\n')
        self.expect_finding("check_additions.py", "device_agent/agent.cc:1", "names the device abacus")
        os.remove(os.path.join(self.root, "device_agent/agent.cc"))
        self.put("deploy/runtime/README.md", "| device | `abacus` | `d/abacus.c`, `d/CMakeLists.txt` |\n")
        self.expect_finding("check_additions.py", "device: expected 3 files, found 2")

    def test_a_target_that_takes_one_file_more(self):
        toy = ["tests/toy/%s" % name for name in ("rows.def", "CMakeLists.txt", "machines.cc", "codegen.cc", "extra.h")]
        row = "| %s | `toy` | %s |\n"
        files = lambda *paths: ", ".join("`%s`" % path for path in paths)
        rows = (row % ("kind", files(*toy[:4])) + row % ("family", files(*toy[:4])) + row % ("machine", files(toy[2])) +
                row % ("intrinsic", files(*toy[2:4])))
        self.put("compiler/targets/README.md", rows)
        for path in toy[:4]:
            self.put(path, "toy\n")
        self.put("compiler/op/op.cc", "int toys;  // as a toy has\n")
        code, output = self.run_check("check_additions.py")
        self.assertEqual(code, 0, output)
        self.put(toy[4], "toy\n")
        self.expect_finding("check_additions.py", "tests/toy/extra.h: a file of the toy that no worked example counts")
        self.put("compiler/targets/README.md", rows.replace(files(*toy[:4]), files(*toy), 1))
        self.expect_finding("check_additions.py", "kind: expected 4 files, found 5")
        os.remove(os.path.join(self.root, toy[4]))
        self.put("compiler/targets/README.md", rows)
        for path in ("compiler/op/op.cc", "tuner_server/log/log.cc", "tests/unit/CMakeLists.txt"):
            self.put(path, 'kinds = {"cpu", "toy"}\n')
            self.expect_finding("check_additions.py", "%s:1: names the toy" % path)
            os.remove(os.path.join(self.root, path))

    def test_unregistered_source(self):
        self.put("compiler/op/op.cc", '#include "compiler/op/op.h"\n')
        self.expect_finding("check_docs.py", "compiler/op/op.cc: expected in a CMakeLists.txt")
        self.put("compiler/op/CMakeLists.txt", "tw_library(x SRCS pre_op.cc)\n")
        self.expect_finding("check_docs.py", "compiler/op/op.cc: expected in a CMakeLists.txt")
        self.put("compiler/op/CMakeLists.txt", "tw_library(x SRCS op.cc)\n")
        self.assertEqual(self.run_check("check_docs.py")[0], 0)
        self.put("compiler/op/CMakeLists.txt", "")
        self.put("compiler/CMakeLists.txt", "tw_library(x SRCS op/op.cc)\n")
        self.assertEqual(self.run_check("check_docs.py")[0], 0)

    def test_sources_of_tables(self):
        self.put("compiler/op/CMakeLists.txt", "tw_table_sources(families rows/families.def)\n"
                 "tw_library(x SRCS\n  ${families}\n  op.cc\n)\n")
        self.put("compiler/op/rows/README.md", "# rows\n")
        self.put("compiler/op/rows/families.def", '// "pool.cc"\nTW_FAMILY(Conv, "conv.cc")\n')
        body = "namespace {\nconstexpr int kPad = 1;\n}  // namespace\n"
        self.put("compiler/op/op.cc", body)
        self.put("compiler/op/rows/conv.cc", "int f();\n")
        self.assertEqual(self.run_check("check_docs.py")[0], 0)
        self.assertEqual(self.run_check("check_batches.py")[0], 0)
        self.put("compiler/op/rows/conv.cc", body)
        self.expect_finding("check_batches.py", "kPad is also defined by")
        self.put("compiler/op/rows/pool.cc", "int g();\n")
        self.expect_finding("check_docs.py", "compiler/op/rows/pool.cc: expected in a CMakeLists.txt")

    def test_threats_without_a_test(self):
        table = "# Threats\n\n## Threats and defences\n\n| threat | answer | proof |\n|---|---|---|\n%s\n## Rest\n"
        self.put("deploy/ops/README.md", "# ops\n")
        self.put("tests/unit/README.md", "# unit\n")
        self.put("tests/unit/CMakeLists.txt", "tw_test(x SRCS gate_test.cc)\n")
        self.put("tests/unit/gate_test.cc", "TEST(Gate, IsClosed) {}\n")
        self.put("deploy/ops/threat_model.md", table % "| a stranger | TLS | `gate_test`: `IsClosed` |\n")
        self.assertEqual(self.run_check("check_docs.py")[0], 0)
        for proof, finding in (("open: none", "names no test"), ("`gone_test`", "no such test: gone_test"),
                               ("`gone.py`", "no such test: gone.py"), ("`gate_test`: `IsOpen`", "no case IsOpen")):
            self.put("deploy/ops/threat_model.md", table % ("| a stranger | TLS | %s |\n" % proof))
            self.expect_finding("check_docs.py", "deploy/ops/threat_model.md:7: ", finding)

    def test_promises_without_a_test_or_a_figure(self):
        row = "| R%d | no loss | `unit/loss_test.py` | %s |\n"
        self.put("tests/unit/README.md", "# unit\n")
        self.put("tests/unit/CMakeLists.txt", "tw_script_test(x loss_test.py)\n")
        self.put("tests/unit/loss_test.py", "# Promise R1.\n")
        self.put("tests/README.md", row % (1, "0 of 500"))
        self.assertEqual(self.run_check("check_docs.py")[0], 0)
        self.put("tests/README.md", row % (1, "none"))
        self.expect_finding("check_docs.py", "tests/README.md:1: R1 has no figure")
        self.put("tests/README.md", row % (1, "0 of 500") + row % (2, "0 of 500"))
        self.expect_finding("check_docs.py", "tests/README.md:2: no test of its row names R2")
        self.put("tests/unit/loss_test.py", "# Promises R1 and R3.\n")
        self.put("tests/README.md", row % (1, "0 of 500") + row % (3, "0 of 500"))
        self.expect_finding("check_docs.py", "found R1 R3")

    def test_knowledge_that_is_written_down_twice(self):
        body = "int %s(int a) {\n  int twice = a * 2;\n%s  return twice + twice / 3 + twice / 5 + twice / 7 + twice / 11;\n}\n"
        self.put("CMakeLists.txt", "project(tilewright VERSION 7.8.9 LANGUAGES CXX)\n")
        self.put("compiler/op/a.cc", body % ("Half", "") + 'auto s = "7.8";\n')
        self.put("compiler/op/b.cc", body % ("Half", "  twice += 1;\n"))
        code, output = self.run_check("check_said_once.py")
        self.assertEqual(code, 0, output)
        self.put("compiler/op/b.cc", body % ("Other", "  // as a\n"))
        self.expect_finding("check_said_once.py", "compiler/op/b.cc:1: Other has the body of Half in compiler/op/a.cc")
        for planted, words in (('auto v = "7.8.9";\n', "a version"),
                               ('if (model == "xgboost") {}\n', "a cost model"),
                               ('auto kinds = {"cpu", "opencl"};\n', "device kinds"),
                               ("auto o = static_cast<v1::Outcome>(n);\n", "by number"),
                               ("d->set_nanos(\n    static_cast<int32_t>(n));\n", "in parts")):
            self.put("compiler/op/b.cc", planted)
            self.expect_finding("check_said_once.py", "compiler/op/b.cc:1: ", words)

    def test_names_of_targets_outside_of_their_folders(self):
        self.put("compiler/targets/x86/code.cc", 'const char* kName = "avx512vnni";\n')
        self.put("compiler/ir/ir.h", "#pragma once\n// AVX and NEON in a comment\nint charm, harmony;\n")
        self.assertEqual(self.run_check("check_target_names.py")[0], 0)
        self.put("compiler/op/op.h", '#pragma once\nconst char* kName = "cortex-a76";\n')
        self.expect_finding("check_target_names.py", "compiler/op/op.h:2: cortex:")
        for name, word in (("VtaPipeline", "Vta"), ("kVta", "Vta"), ("BlockAvx512", "Avx512"), ("kOpenClWord", "Open_Cl"),
                           ("VTAScope", "VTA"), ("cl_khr_fp16", "cl_khr_fp16")):
            self.put("compiler/op/op.h", "#pragma once\nint %s();\n" % name)
            self.expect_finding("check_target_names.py", "compiler/op/op.h:2: %s:" % word)
        self.put("compiler/op/op.h", "#pragma once\nint Metallic(), ArmFailpoint(), kSweep, octavx;\n")
        self.assertEqual(self.run_check("check_target_names.py")[0], 0)
        self.put("deploy/runtime/cpu_info.cc", "int avx2, sse4;\n")
        self.put("compiler/op/op.h", "#pragma once\n")
        self.assertEqual(self.run_check("check_target_names.py")[0], 0)
        self.put("deploy/support/hash.cc", "int x86_64, znver4, avx2, neon, sve;\nint sdot;\n")
        self.expect_finding("check_target_names.py", "deploy/support/hash.cc:2: sdot:", "may have 5")
        self.put("deploy/support/hash.cc", "int sse4;\n")
        self.expect_finding("check_target_names.py", "deploy/support/hash.cc: has 1 names", "lower the row")

    def test_english_that_is_hard_to_read(self):
        header = "#pragma once\n// %s\nint F();  // %s\n"
        self.put("deploy/support/status.h", header % (
            "Returns `told` at 3 a.m.; \"nobody\" and news.final are names.", "the port_stands for it"))
        self.put("deploy/support/README.md", "# support\n\n    whoever reads code\n\n| `status.h` | a phrase | %s |\n" % ("cell " * 20))
        self.put("compiler/ir/ir.h", "// Nobody has mended this folder.\n")
        code, output = self.run_check("check_english.py")
        self.assertEqual(code, 0, output)
        for planted, words in (("The check runs\n// beside the load.", 'avoid "beside"'),
                               ("Whoever calls it waits.", 'avoid "Whoever"'),
                               ("Returns at\n// once.", 'avoid "at once"'),
                               ("It " + "is a word " * 15 + "long.", "a sentence of 47 words; at most 30")):
            self.put("deploy/support/status.h", header % (planted, "of it"))
            self.expect_finding("check_english.py", "deploy/support/status.h:2: ", words)
        self.put("deploy/support/status.h", header % ("Fine.", "who goes on"))
        self.expect_finding("check_english.py", 'deploy/support/status.h:3: avoid "goes on"')
        self.put("deploy/support/status.h", "#pragma once\n")
        self.put("compiler/op/op.cc", '// told\nF("news", "the job goes on; wait");\n')
        self.expect_finding("check_english.py", 'compiler/op/op.cc:2: avoid "goes on"')
        self.put("compiler/op/op.cc", "")
        self.put("deploy/support/README.md", "# support\n\nThe news\nlies here.\n")
        code, output = self.run_check("check_english.py")
        self.assertIn("deploy/support/README.md:3: avoid \"news\"", output)
        self.assertIn("2 findings", output)

    def test_functions_that_a_class_puts_into_the_wrong_file(self):
        self.put("compiler/op/CMakeLists.txt", "tw_library(x SRCS pool.cc pool_work.cc)\n")
        self.put("compiler/op/pool.cc", "void Pool::Take(int n) {}\n")
        self.put("compiler/op/pool_work.cc", "absl::Status Pool::Work() const {}\n")
        header = ("class Pool {\n  // pool.cc: leases\n  void Take(\n      int n);\n  int size() { return 1; }\n"
                  "  // %s: work\n  absl::Status %s() const;\n\n  void Touch() {\n    x_ = 1;\n  }\n};\n")
        self.put("compiler/op/pool.h", header % ("pool_work.cc", "Work"))
        self.assertEqual(self.run_check("check_docs.py")[0], 0)
        self.put("compiler/op/pool.h", header % ("pool_work.cc", "Lose"))
        self.expect_finding("check_docs.py", "compiler/op/pool.h:7: Lose is not in compiler/op/pool_work.cc")
        self.put("compiler/op/pool.h", header % ("pool_gone.cc", "Work"))
        self.expect_finding("check_docs.py", "compiler/op/pool.h:6: no such file: pool_gone.cc")

    def test_same_basename(self):
        self.put("compiler/op/ir.h", "#pragma once\n")
        self.expect_finding("check_docs.py", "also taken by compiler/ir/ir.h")

    def test_forbidden_calls(self):
        for call in ("std::chrono::system_clock::now()", "rand()", "std::getenv(\"A\")",
                     "std::this_thread::sleep_for(x)", "fopen(\"a\", \"r\")", "std::mt19937 g"):
            self.put("compiler/op/op.h", "int x = %s;\n" % call)
            self.expect_finding("check_docs.py", "compiler/op/op.h:1:")
        self.put("compiler/op/op.h", "// rand() is not used\nint brand();\nint x = brand();\n")
        self.assertEqual(self.run_check("check_docs.py")[0], 0)
        self.put("compiler/op/op.h", "// TO" + "DO: later\n")
        self.expect_finding("check_docs.py", "compiler/op/op.h:1:")

    def test_slugs_and_metrics_that_lack_their_row_or_their_source(self):
        page, metrics = "deploy/docs/reference/errors.md", "deploy/docs/reference/metrics.md"
        source = ('absl::Status F() { return InvalidArgument("op.shape.rank", "expected " + x); }\n'
                  'absl::Status G() { return MakeError(absl::StatusCode::kNotFound, "op.name.unknown", x); }\n'
                  'void H() { LogInfo("op.started", {}); if (slug == "op.other.asked") return; }\n'
                  'void I(M* m) { m->Counter("tilewright_op_calls_total", "calls " "made", {{"kind", x}}); }\n')
        self.put("compiler/op/CMakeLists.txt", "tw_library(x SRCS op.cc)\n")
        self.put("compiler/op/op.cc", source)
        rows = "| `op.shape.rank` | | | |\n| `op.name.unknown` | | | |\n"
        self.put(page, rows)
        self.put(metrics, "| `tilewright_op_calls_total` | | |\n")
        self.assertEqual(self.run_check("check_reference.py"), (0, "check_reference: 0 flags, ok\n"))
        self.put(page, rows + "| `op.shape.gone` | | | |\n")
        self.expect_finding("check_reference.py", "op.shape.gone", "generate_reference.py")
        self.put(page, "| `op.shape.rank` | | | |\n")
        self.expect_finding("check_reference.py", "lacks op.name.unknown of compiler/op/op.cc")
        self.put(page, rows)
        self.put(metrics, "")
        self.expect_finding("check_reference.py", "lacks tilewright_op_calls_total")
        self.put(metrics, "| `tilewright_op_calls_total` | | |\n")
        self.put(metrics, "<!-- Generated by tests/lint/generate_reference.py. Do not edit. -->\n\n"
                 "| `tilewright_op_calls_total` | | | of old |\n")
        self.expect_finding("check_reference.py", "metrics.md: is out of date")
        self.put(metrics, "| `tilewright_op_calls_total` | | |\n")
        self.put("deploy/ops/monitoring/alerts.yml", "expr: rate(tilewright_op_calls_total[5m])\n"
                 "expr: tilewright_op_seconds_bucket\n")
        self.expect_finding("check_reference.py", "alerts.yml:2", "tilewright_op_seconds_bucket")

    def test_operators_that_lack_their_row_or_their_conversion(self):
        self.put("compiler/onnx/README.md", "# onnx\n")
        self.put("compiler/onnx/CMakeLists.txt", "tw_library(x SRCS onnx_ops.cc)\n")
        self.put("compiler/onnx/onnx_ops.cc", 'constexpr Conversion kRows[] = {\n    {"Conv", ImportConv, "two"},\n    {"Cast", Cast},\n};\n')
        self.put("compiler/op/CMakeLists.txt", "tw_library(x SRCS elementwise.cc)\n")
        self.put("compiler/op/elementwise.cc", 'constexpr Row kRows[] = {\n    {"add", "Add", 2, false},\n};\n')
        rows = "| operator | domain |\n|---|---|\n| Add | |\n| Cast | |\n"
        self.put("deploy/docs/operators.md", rows + "| Conv | |\n")
        self.assertEqual(self.run_check("check_reference.py")[0], 0)
        self.put("deploy/docs/operators.md", rows)
        self.expect_finding("check_reference.py", "lacks Conv of compiler/onnx/onnx_ops.cc", "generate_reference.py")
        self.put("deploy/docs/operators.md", rows + "| Conv | |\n| Einsum | |\n")
        self.expect_finding("check_reference.py", "names Einsum")

    def test_flags_without_a_page_and_flags_that_nobody_takes(self):
        page = "deploy/docs/reference/tilewright.md"
        declare = 'void F(App* a) { a->add_flag("--fast,!--slow", f, "quick"); a->add_option("-o,--output", o); }\n'
        shown = "  -h,--help   this\n  --fast, !--slow   quick\n  -o,--output TEXT   file\n"
        self.put("compiler/op/CMakeLists.txt", "tw_library(x SRCS op.cc)\n")
        self.put("compiler/op/op.cc", declare)
        self.put(page, shown)
        self.assertEqual(self.run_check("check_reference.py"), (0, "check_reference: 3 flags, ok\n"))
        self.put(page, shown + "  --old    gone\n")
        self.expect_finding("check_reference.py", "names --old", "generate_reference.py")
        self.put(page, shown.replace("--fast, ", ""))
        self.expect_finding("check_reference.py", "lacks --fast of compiler/op/op.cc")
        self.put(page, shown)
        self.put("deploy/ops/README.md", "| `a` |\nGive `--output FILE`.\nGive `--outptu FILE`.\n")
        self.expect_finding("check_reference.py", "deploy/ops/README.md:3", "--outptu")
        self.put("deploy/ops/README.md", "")
        self.put("compiler/op/op.cc", declare + '// --in-a-comment\nconst char* k = "use --speedy";\n')
        self.expect_finding("check_reference.py", "compiler/op/op.cc:3", "--speedy")
        self.put("compiler/op/op.cc", declare)
        self.put("deploy/ops/config/a.conf", 'output = "x"\n# quick = true\n')
        self.expect_finding("check_reference.py", "a.conf:2", "quick")

    def test_environment_variables_and_links(self):
        page = "deploy/docs/environment.md"
        self.put("compiler/op/CMakeLists.txt", "tw_library(x SRCS op.cc)\n")
        self.put("compiler/op/op.cc", 'int F() { return support::GetEnv("TILEWRIGHT_A").has_value(); }\n')
        self.put(page, "| `TILEWRIGHT_A` | it |\n")
        self.assertEqual(self.run_check("check_reference.py")[0], 0)
        self.put(page, "")
        self.expect_finding("check_reference.py", "lacks TILEWRIGHT_A of compiler/op/op.cc")
        self.put(page, "| `TILEWRIGHT_A` | it |\n| `TMPDIR` | folder |\n")
        self.expect_finding("check_reference.py", "names TMPDIR")
        self.put(page, "| `TILEWRIGHT_A` | it |\n")
        self.put("compiler/op/README.md", "Set TILEWRIGHT_A, not TILEWRIGHT_AA.\n")
        self.expect_finding("check_reference.py", "compiler/op/README.md:1: nothing reads TILEWRIGHT_AA")
        self.put("compiler/op/README.md", "See [ir](../ir/README.md#x), [the](https://x/y) and\n[gone](../no/README.md).\n")
        self.expect_finding("check_reference.py", "compiler/op/README.md:2", "../no/README.md")

    def test_strip_keeps_lines(self):
        text = 'a /* b\n c */ d "e // f" \'"\' g // h\n1\'000\'000 i'
        stripped = source_files.strip_cpp(text)
        self.assertEqual(stripped.count("\n"), text.count("\n"))
        for kept in ("a ", " d ", " g ", "1'000'000 i"):
            self.assertIn(kept, stripped)
        for gone in ("b", "c", "e", "h"):
            self.assertNotIn(gone, stripped)

    def test_layout_of_code_and_scripts(self):
        for path in CLEAN:
            if not path.endswith((".h", ".cc")):
                continue
            self.put(path, CLEAN[path])
        shutil.copy(os.path.join(source_files.ROOT, ".clang-format"), self.root)
        code, output = self.run_check("check_format.py")
        self.assertEqual(code, 0, output)
        if "[SKIP]" in output:
            self.skipTest("[SKIP] no formatter here")
        self.put("compiler/op/op.h", "#pragma once\nint   F( );\n")
        self.expect_finding("check_format.py", "compiler/op/op.h:2")
        # The formatter leaves tables in comments alone, so their width is checked apart.
        table = "#pragma once\n// GRAMMAR   a := b c\n//           %s := d\nint F();\n"
        self.put("compiler/op/op.h", table % ("b" * 80))
        self.assertEqual(self.run_check("check_format.py")[0], 0)
        self.put("compiler/op/op.h", table % ("b" * 90))
        self.expect_finding("check_format.py", "compiler/op/op.h:3: expected at most 100 columns")
        self.put("compiler/op/op.h", CLEAN["compiler/op/op.h"])
        self.put("tests/broken.py", "def f(:\n")
        self.expect_finding("check_format.py", "tests/broken.py:1")


if __name__ == "__main__":
    unittest.main()
