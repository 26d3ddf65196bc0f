// Writes a test module to the path given: input for tests in other languages.
#include <iostream>
#include <string_view>

#include "deploy/module/module_file.h"
#include "tests/unit/module_fixture.h"

int main(int argc, char** argv) {
  const bool every_type = argc == 3 && std::string_view(argv[2]) == "--every-type";
  if (argc != 2 && !every_type) {
    std::cerr << "usage: tilewright_make_test_module OUT.tw [--every-type]\n";
    return 2;
  }
  const absl::Status status = tilewright::module::WriteModule(
      argv[1], every_type ? tilewright::test::EveryTypeModule() : tilewright::test::DenseModule());
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
