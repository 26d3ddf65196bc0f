#include "tuner_server/log/toolchain_text.h"

namespace tilewright::log {
namespace {

constexpr size_t kMaxCompilerBytes = 80;

std::string_view GeneratorOf(std::string_view toolchain) {
  return toolchain.substr(0, toolchain.find('+'));
}

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '+';
}

}  // namespace

std::string WithCompiler(std::string_view toolchain, std::string_view compiler) {
  std::string text(GeneratorOf(toolchain));
  if (compiler.empty()) return text;
  text.push_back('+');
  for (const char c : compiler.substr(0, kMaxCompilerBytes)) {
    text.push_back(IsWordCharacter(c) ? c : '-');
  }
  return text;
}

std::string_view CompilerOf(std::string_view toolchain) {
  const size_t plus = toolchain.find('+');
  return plus == std::string_view::npos ? std::string_view() : toolchain.substr(plus + 1);
}

bool ToolchainFits(std::string_view wanted, std::string_view found) {
  if (!CompilerOf(wanted).empty()) return wanted == found;
  return GeneratorOf(wanted) == GeneratorOf(found);
}

}  // namespace tilewright::log
