// Writes a test module to the path given: input for tests in other languages.
#include <iostream>
#include <string_view>

#include "deploy/module/module_writer.h"
#include "tests/unit/module_fixture.h"

int main(int argc, char** argv) {
  namespace test = tilewright::test;
  const std::string_view kind = argc == 3 ? argv[2] : "";
  if (argc < 2 || argc > 3 || !(kind.empty() || kind == "--every-type" || kind == "--open-rows")) {
    std::cerr << "usage: tilewright_make_test_module OUT.tw [--every-type | --open-rows]\n";
    return 2;
  }
  const auto written =
      tilewright::module::WriteModule(argv[1], kind == "--every-type"  ? test::EveryTypeModule()
                                               : kind == "--open-rows" ? test::OpenRowsModule()
                                                                       : test::DenseModule());
  if (!written.ok()) std::cerr << written.status() << "\n";
  return written.ok() ? 0 : 1;
}
