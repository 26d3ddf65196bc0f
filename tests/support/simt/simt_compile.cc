#include "tests/support/simt/simt_compile.h"

#include <dlfcn.h>

#include <algorithm>
#include <regex>

#include "deploy/support/file.h"
#include "deploy/support/process.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::simt {
namespace {

using support::StrCat;

constexpr int64_t kTimeoutMs = 300'000;

// The words of a language.
std::string HeaderOf(Language language) {
  switch (language) {
    case Language::kCuda:
      return "simt_cuda.h";
    case Language::kOpenCl:
      return "simt_opencl.h";
    case Language::kHip:
      return "simt_hip.h";
    case Language::kMetal:
      return "simt_metal.h";
  }
  TW_CHECK(false) << "a language without a header";
}

// Declarations of shared arrays become calls; literals of vectors, too. C++ would take the latter
// for the last of their elements.
std::string AsCpp(const std::string& text) {
  static const std::regex kShared(
      R"((__shared__|__local|(?:alignas\(16\) )?threadgroup) ([\w ]+) (\w+)\[(\d+)\];)");
  static const std::regex kAligned(R"(__shared__ __align__\((\d+)\) ([\w ]+) (\w+)\[(\d+)\];)");
  static const std::regex kVector(R"(\(\((u?(char|short|int|long)|float|double)(2|4|8|16)\)\()");
  static const std::regex kExtern(R"re(extern "C" )re");
  static const std::regex kDynamic(R"(extern __shared__ __align__\(\d+\) tw_u8 \w+\[\];)");
  std::string cpp = std::regex_replace(std::regex_replace(text, kDynamic, ""), kAligned,
                                       "SIMT_SHARED_AT($2, $3, $4, $1);");
  cpp = std::regex_replace(cpp, kShared, "SIMT_SHARED($2, $3, $4);");
  cpp = std::regex_replace(cpp, kVector, "(simt_make<$1$3>(");
  return std::regex_replace(cpp, kExtern, "");
}

// Parameters of Metal's kernels that the device gives become declarations in the body; sizes are
// passed as values.
std::string WithoutGivenParameters(const std::string& text) {
  static const std::regex kKernel(R"((\[\[kernel[^{;]*\{))");
  static const std::regex kGiven(R"(,? ?(uint3?) (\w+) \[\[(thread\w*|simd\w*)\]\])");
  static const std::regex kSize(R"(constant long& )");
  static const std::regex kInclude(R"(#include <metal_stdlib>)");
  std::string cpp;
  std::sregex_iterator at(text.begin(), text.end(), kKernel), end;
  size_t done = 0;
  for (; at != end; ++at) {
    const auto begin = static_cast<size_t>(at->position());
    const std::string head = at->str();
    cpp += text.substr(done, begin - done) +
           std::regex_replace(std::regex_replace(head, kGiven, ""), kSize, "long ");
    for (std::sregex_iterator given(head.begin(), head.end(), kGiven); given != end; ++given)
      cpp += StrCat(" const ", (*given)[1].str(), " ", (*given)[2].str(), " = simt_metal_",
                    (*given)[3].str(), "();");
    done = begin + head.size();
  }
  return std::regex_replace(cpp + text.substr(done), kInclude, "");
}

// The numbers of a kernel's maps (compiler/codegen/c_like.h, BulkCopyWords::maps).
std::vector<std::array<int64_t, 5>> MapsOf(const std::string& text, const std::string& kernel) {
  const std::regex maps(kernel + R"(_tensor_maps\[\d+\] = \{([^}]*)\};)");
  std::vector<std::array<int64_t, 5>> rows;
  std::smatch found;
  if (!std::regex_search(text, found, maps)) return rows;
  size_t count = 0;
  for (const std::string& number : support::Split(found[1].str(), ',')) {
    if (count % 5 == 0) rows.emplace_back();
    rows.back()[count++ % 5] = std::stoll(number);
  }
  return rows;
}

// Of the array that says so (DynamicSharedWords::size); 0: there is none.
int64_t DynamicSharedOf(const std::string& text, const std::string& kernel) {
  const std::regex size(kernel + R"(_dynamic_shared_kib\[(\d+)\])");
  std::smatch found;
  return std::regex_search(text, found, size) ? std::stoll(found[1]) << 10 : 0;
}

std::string EntryName(size_t text, const std::string& kernel) {
  return StrCat("simt_entry_", text, "_", kernel);
}

std::string ProgramOf(const std::vector<Text>& texts, Language language) {
  std::string program = StrCat("#include \"tests/support/simt/", HeaderOf(language), "\"\n");
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].language != language) continue;
    // Texts begin with the same macros.
    const std::string text =
        language == Language::kMetal ? WithoutGivenParameters(texts[i].text) : texts[i].text;
    program += StrCat("namespace simt_text_", i, " {\n", AsCpp(text), "\n}\n");
    for (const std::string& kernel : texts[i].kernels) {
      program += StrCat("extern \"C\" __attribute__((visibility(\"default\"))) void* const ",
                        EntryName(i, kernel), " = (void*)simt_text_", i, "::", kernel, ";\n");
    }
  }
  return program;
}

// -nodefaultlibs: without the library of the sanitizer, whose calls are the emulator's.
absl::StatusOr<void*> Build(const std::string& program) {
  TW_ASSIGN(const support::TempDir folder, support::TempDir::Create("simt"));
  const std::string source = folder.path() + "/kernels.cc", object = folder.path() + "/kernels.so";
  TW_TRY(support::WriteFileAtomic(source, program));
  support::ChildOptions compiler;
  compiler.program = TILEWRIGHT_SIMT_CXX;
  compiler.args = {"-std=c++17",
                   "-O1",
                   "-w",
                   "-fPIC",
                   "-shared",
                   "-fno-strict-aliasing",
                   "-ffp-contract=off",
                   "-fvisibility=hidden",
                   "-fno-tree-sra",
                   "-ftrivial-auto-var-init=pattern",
                   "-fsanitize=thread",
                   "--param=tsan-instrument-func-entry-exit=0",
                   "-D__restrict__=",
                   StrCat("-I", TILEWRIGHT_SIMT_ROOT),
                   "-o",
                   object,
                   source,
                   "-nodefaultlibs",
                   "-lm",
                   "-lc",
                   "-lgcc"};
  TW_ASSIGN(const support::CommandResult result, support::RunCommand(compiler, "", kTimeoutMs));
  if (!result.status.ok())
    return support::InvalidArgument("simt.compile", result.stderr_text.substr(0, 4000));
  void* handle = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return support::InvalidArgument("simt.compile", dlerror());
  return handle;
}

absl::Status CompileLanguage(const std::vector<Text>& texts, Language language,
                             std::vector<std::vector<Kernel>>* kernels) {
  TW_ASSIGN(void* object, Build(ProgramOf(texts, language)));
  const auto bind = reinterpret_cast<void (*)(SimtHooks*)>(dlsym(object, "simt_bind"));
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].language != language) continue;
    for (const std::string& name : texts[i].kernels) {
      auto* entry = static_cast<void* const*>(dlsym(object, EntryName(i, name).c_str()));
      TW_CHECK(entry != nullptr && bind != nullptr) << name;
      (*kernels)[i].push_back({*entry, bind, texts[i].warp, MapsOf(texts[i].text, name),
                               DynamicSharedOf(texts[i].text, name)});
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::vector<Kernel>>> Compile(const std::vector<Text>& texts) {
  std::vector<std::vector<Kernel>> kernels(texts.size());
  for (const Language language :
       {Language::kCuda, Language::kOpenCl, Language::kHip, Language::kMetal}) {
    const bool any = std::any_of(texts.begin(), texts.end(),
                                 [&](const Text& t) { return t.language == language; });
    if (any) TW_TRY(CompileLanguage(texts, language, &kernels));
  }
  return kernels;
}

std::vector<std::string> KernelNames(std::string_view text) {
  static const std::regex kKernel(R"((__global__|__kernel|\[\[kernel)[^;{]*?void (\w+)\()");
  std::vector<std::string> names;
  const std::string all(text);
  for (std::sregex_iterator at(all.begin(), all.end(), kKernel), end; at != end; ++at)
    names.push_back((*at)[2]);
  return names;
}

}  // namespace tilewright::simt
