// Writes the dense test module to the path given: input for tests in other languages.
#include <iostream>

#include "deploy/module/module_file.h"
#include "tests/unit/module_fixture.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tilewright_make_test_module OUT.tw\n";
    return 2;
  }
  const absl::Status status =
      tilewright::module::WriteModule(argv[1], tilewright::test::DenseModule());
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
