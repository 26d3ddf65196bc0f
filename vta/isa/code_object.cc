// The bytes, all integers little-endian, 64 bits but for micro-ops:
//   "TWVTA" 0 0 4
//   hardware configuration (its length, its text)
//   number of programs, then for each
//     name (its length, its bytes), uop_offset, image_bytes
//     number of parameters, then for each: name, offset, bytes
//     number of instructions, then their low and high halves
//     number of micro-ops, then 32 bits for each
//     constants (their length, their bytes)
#include "vta/isa/code_object.h"

#include <algorithm>
#include <cstring>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

constexpr std::string_view kMagic("TWVTA\0\0\4", 8);

class Writer {
 public:
  void Number(uint64_t value, int bytes = 8) {
    for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i));
  }
  void Size(size_t value) { Number(value); }
  void Offset(int64_t value) { Number(static_cast<uint64_t>(value)); }
  void Text(std::string_view text) {
    Size(text.size());
    out_ += text;
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_ = std::string(kMagic);
};

// After the end of the bytes every read gives 0 and ok() is false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  bool ok() const { return ok_; }
  bool done() const { return ok_ && left_.empty(); }
  uint64_t Number(int bytes = 8) {
    const std::string_view text = Take(static_cast<uint64_t>(bytes));
    uint64_t value = 0;
    for (size_t i = 0; i < text.size(); ++i)
      value |= static_cast<uint64_t>(static_cast<uint8_t>(text[i])) << (8 * i);
    return value;
  }
  int64_t Offset() {
    const auto value = static_cast<int64_t>(Number());
    ok_ = ok_ && value >= 0;
    return value;
  }
  std::string Text() { return std::string(Take(Number())); }
  // How many items of at least so many bytes follow.
  uint64_t Count(uint64_t item_bytes) {
    const uint64_t count = Number();
    ok_ = ok_ && count <= left_.size() / item_bytes;
    return ok_ ? count : 0;
  }

 private:
  std::string_view Take(uint64_t bytes) {
    ok_ = ok_ && bytes <= left_.size();
    if (!ok_) return {};
    const std::string_view taken = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return taken;
  }

  std::string_view left_;
  bool ok_ = true;
};

absl::Status NotCode(const std::string& what) {
  return support::DataLoss("vta.code.format",
                           "expected a code object of this version, found " + what);
}

absl::Status Write(const Isa& isa, const Program& program, Writer* out) {
  out->Text(program.name);
  out->Offset(program.uop_offset);
  out->Offset(program.image_bytes);
  out->Size(program.params.size());
  for (const Program::Param& param : program.params) {
    out->Text(param.name);
    out->Offset(param.offset);
    out->Offset(param.bytes);
  }
  TW_ASSIGN(const std::vector<Word128> words, program.Encoded(isa));
  out->Size(words.size());
  for (const Word128& word : words) {
    out->Number(word.low);
    out->Number(word.high);
  }
  out->Size(program.uops.size());
  for (const MicroOp& uop : program.uops) {
    TW_ASSIGN(const uint32_t word, isa.EncodeUop(uop));
    out->Number(word, 4);
  }
  out->Text(program.constants);
  return absl::OkStatus();
}

bool IsPlaced(const Program& program) {
  const int64_t end = program.constant_offset();
  if (end < 0) return false;
  for (const Program::Param& param : program.params) {
    if (param.offset > end || param.bytes > end - param.offset) return false;
  }
  const auto uop_bytes = static_cast<int64_t>(4 * program.uops.size());
  return program.uop_offset <= program.image_bytes &&
         program.image_bytes - program.uop_offset == uop_bytes;
}

absl::StatusOr<Program> Read(const Isa& isa, Reader* in) {
  Program program;
  program.name = in->Text();
  program.uop_offset = in->Offset();
  program.image_bytes = in->Offset();
  for (uint64_t n = in->Count(24); n > 0; --n) {
    Program::Param& param = program.params.emplace_back();
    param.name = in->Text();
    param.offset = in->Offset();
    param.bytes = in->Offset();
  }
  for (uint64_t n = in->Count(16); n > 0; --n) {
    Word128 word;
    word.low = in->Number();
    word.high = in->Number();
    TW_ASSIGN(const Instruction instruction, isa.Decode(word));
    program.stream.push_back(instruction);
  }
  for (uint64_t n = in->Count(4); n > 0; --n)
    program.uops.push_back(isa.DecodeUop(static_cast<uint32_t>(in->Number(4))));
  program.constants = in->Text();
  if (!in->ok()) return NotCode("one that ends early");
  if (!IsPlaced(program)) return NotCode("places outside of the image of " + program.name);
  return program;
}

}  // namespace

std::string Program::Listing() const {
  std::string text;
  for (const Param& p : params) {
    text += StrCat("# ", p.name, ": bytes ", p.offset, " to ", p.offset + p.bytes, "\n");
  }
  if (!constants.empty())
    text += StrCat("# constants: bytes ", constant_offset(), " to ", uop_offset, "\n");
  text += StrCat("# micro-ops: bytes ", uop_offset, " to ", image_bytes, "\n");
  for (size_t i = 0; i < stream.size(); ++i) {
    text += StrCat(i, ": ", Disassemble(stream[i]), "\n");
  }
  for (size_t i = 0; i < uops.size(); ++i) {
    text +=
        StrCat("uop ", i, ": dst=", uops[i].dst, " src=", uops[i].src, " wgt=", uops[i].wgt, "\n");
  }
  return text;
}

absl::StatusOr<std::vector<Word128>> Program::Encoded(const Isa& isa) const {
  return isa.Encode(stream);
}

absl::StatusOr<std::vector<uint8_t>> Program::Image(const Isa& isa) const {
  std::vector<uint8_t> image(static_cast<size_t>(image_bytes), 0);
  std::copy(constants.begin(), constants.end(), image.begin() + constant_offset());
  for (size_t i = 0; i < uops.size(); ++i) {
    TW_ASSIGN(const uint32_t word, isa.EncodeUop(uops[i]));
    std::memcpy(image.data() + uop_offset + 4 * static_cast<int64_t>(i), &word, sizeof word);
  }
  return image;
}

absl::StatusOr<std::string> SerializeCode(const CodeObject& code) {
  TW_ASSIGN(const Isa isa, Isa::Make(code.config));
  Writer out;
  out.Text(code.config.ToString());
  out.Size(code.programs.size());
  for (const Program& program : code.programs) TW_TRY(Write(isa, program, &out));
  return out.Take();
}

absl::StatusOr<CodeObject> ParseCode(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) return NotCode("other bytes");
  Reader in(bytes.substr(kMagic.size()));
  const std::string config = in.Text();
  if (!in.ok()) return NotCode("one that ends early");
  CodeObject code;
  TW_ASSIGN(code.config, ParseConfig(config));
  TW_ASSIGN(const Isa isa, Isa::Make(code.config));
  for (uint64_t n = in.Count(56); n > 0; --n) {
    TW_ASSIGN(Program program, Read(isa, &in));
    code.programs.push_back(std::move(program));
  }
  if (!in.done()) return NotCode("more or fewer bytes than its programs have");
  return code;
}

}  // namespace tilewright::vta
