// Copies of statements for passes that replicate code. Internal to compiler/transform; one object
// per pass run.
#pragma once

#include <set>
#include <string>

#include "compiler/ir/ir.h"

namespace tilewright::transform {

class Cloner {
 public:
  explicit Cloner(const ir::Function& f);
  // The same statement with variables and allocated buffers of its own (buffers get unused names).
  ir::Stmt Clone(const ir::Stmt& s);
  // `name`, with a number behind it where a buffer has that name; nobody else gets it.
  std::string UnusedName(const std::string& name);

 private:
  std::set<std::string> buffer_names_;
};

// Number of stores and evaluations: what replication multiplies.
int64_t CountLeaves(const ir::Stmt& s);
// Whether there is a loop anywhere in it.
bool HasLoop(const ir::Stmt& s);

}  // namespace tilewright::transform
