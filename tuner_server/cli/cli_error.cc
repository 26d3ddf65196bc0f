#include "tuner_server/cli/cli_error.h"

#include <cstdio>

#include "deploy/support/printable.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {
namespace {

struct AdviceRow {
  std::string_view slug_prefix;
  std::string_view text;
};

constexpr std::string_view kOtherForm =
    "this form of the operator is not supported: export the model with the form that was expected; "
    "'tilewright operators' lists the limits, 'tilewright check MODEL' all that is in the way";
constexpr std::string_view kOtherSizes =
    "give inputs that make the sizes the model states, or export the model with the sizes of these";
constexpr std::string_view kOtherOpset =
    "convert it: python3 -c \"import onnx, onnx.version_converter as c; "
    "onnx.save(c.convert_version(onnx.load('MODEL.onnx'), 21), 'opset21.onnx')\"";

// First match wins: more specific prefixes stand first.
constexpr AdviceRow kAdvice[] = {
    {"cli.usage.no_devices",
     "tune for a target whose devices have a plug-in; 'tilewright compile' makes modules for this "
     "one"},
    {"cli.usage", "see 'tilewright --help' and 'tilewright COMMAND --help'"},
    {"cli.mismatch",
     "compare the files by hand, or widen --rtol / --atol if the difference is wanted"},
    {"cli.records_only",
     "use programs of one version on both sides, or tune without --records-only"},
    {"graph.onnx.strip", "export the model with plain tensors, or tune without --records-only"},
    {"cli.tuned_share", "tune the kernels listed above on such a device, or lower --require-tuned"},
    {"cli.input.name", "use one of the names listed above"},
    {"cli.input", "give each input as NAME=FILE with the shape and type listed above"},
    {"ir.target", "'tilewright targets' lists the targets; 'native' is this machine"},
    {"cli.check.problems",
     "solve them as it says there; 'tilewright operators' lists what models may have"},
    {"quantize.model.quantized", "give the float model that it was made from"},
    {"quantize.keep", "give --keep one of the names listed above"},
    {"quantize.layers",
     "nothing is gained here: 'tilewright compile' takes the float model as it is"},
    {"quantize.ranges", "see 'tilewright quantize --help'"},
    {"cli.calibration.not_finite",
     "check the calibration data, and that the model computes finite numbers of it"},
    {"cli.calibration", "see --data in 'tilewright quantize --help'"},
    {"graph.onnx.unsupported_operator",
     "define these operators in a file and give it with --operators FILE "
     "(deploy/docs/custom_operators.md), or replace them before the export; 'tilewright operators' "
     "lists what is supported, 'tilewright check MODEL' all that is in the way"},
    {"graph.onnx.symbolic_shape",
     "add these --shape flags with a number in place of each N, as in --shape batch=1"},
    {"graph.onnx.shape_override",
     "correct --shape: NAME=1x3x224x224 for an input, NAME=8 for a dimension with a name; "
     "'tilewright check MODEL' lists what the model leaves open"},
    {"graph.onnx.size_conflict", "give the same number wherever the dimension has this name"},
    {"graph.state.name", "name an input of the model and the output that continues it"},
    {"graph.state.form", "leave --state out: callers then pass the cache from run to run"},
    {"graph.state.length", "leave the number of entries open from 0 on: --shape NAME=0..512"},
    {"graph.state.entry", "leave --state out: callers then pass the cache from run to run"},
    {"graph.state.output", "remove that output from the model, or leave --state out"},
    {"graph.onnx.external_data",
     "put the file that the model names into the model's folder; files outside of it are not read. "
     "A model that is sent to a server must hold its data: 'tilewright' sends it so"},
    {"graph.onnx.element_type",
     "export the model with one of the types listed above ('tilewright operators')"},
    {"quantize.model.opset", kOtherOpset},
    {"graph.onnx.opset", kOtherOpset},
    {"builder.checks.too_large",
     "split the operator, or tune a smaller one; 'tilewright compile' needs no measurement"},
    {"graph.onnx.sparse", "export the model with dense tensors"},
    {"graph.onnx.too_large", "models and tensors of more than 2 GiB are not supported: split it"},
    {"graph.onnx.dynamic",
     "export the model so that this is a constant: fix its sizes (--shape, or at the export), and "
     "let the exporter fold constants"},
    {"graph.interp.stated_shape", kOtherSizes},
    {"runtime.session.stated_shape", kOtherSizes},
    {"runtime.session.found_size",
     "compile the model with a larger bound (--shape NAME=0..N), or give other inputs"},
    {"graph.onnx.size_bound", "give the bound that the error names: --shape NAME=0..N"},
    {"runtime.session.memory_limit", "choose smaller sizes"},
    {"runtime.session.too_large",
     "choose smaller sizes, or compile with smaller bounds: --shape NAME=0..N"},
    {"driver.specialise.ends", "leave this point out of --specialise: the model differs there"},
    {"driver.specialise.fixed", "let a dimension stay open, as in --shape batch=1..32"},
    {"driver.specialise",
     "give sizes of dimensions that stay open: --shape batch=1..32 --specialise batch=1,8"},
    {"cli.server.sizes",
     "update the server, give fixed sizes (--shape NAME=8), or tune on this machine (no --server)"},
    {"module.sizes", "choose other sizes (--shape N=7, or other inputs)"},
    {"runtime.session.size", "choose sizes that the module takes (--shape N=7, or other inputs)"},
    {"graph.onnx.stated_shape",
     "export the model again: it states a shape that its own constants do not give"},
    {"graph.onnx.empty_tensor", "leave the part without elements out of the model"},
    {"graph.onnx.not_onnx", "is it an ONNX file, and complete? Export or fetch it again"},
    // Of one node, whose error names the node and what was expected.
    {"graph.onnx.attribute", kOtherForm},
    {"graph.onnx.broadcast", kOtherForm},
    {"graph.onnx.rank", kOtherForm},
    {"graph.onnx.training", "export the model for inference (PyTorch: model.eval())"},
    {"graph.onnx",
     "check the file with onnx.checker, export it again, or fetch it again; 'tilewright check "
     "MODEL' lists all that is in the way"},
    {"graph.pass", "'tilewright compile --print-passes' lists the passes"},
    {"graph", "check the model with onnx.checker and its input shapes (--shape NAME=1x3x224x224)"},
    {"dim.", "check the model's shapes and attributes (--shape NAME=1x3x224x224)"},
    {"runtime.load.library_file", "check that the file is a shared library for this machine"},
    {"runtime.load.library_function",
     "give the library that the operator's definition was written for, or correct the definition"},
    {"runtime.load.library_name", "the module is damaged: compile or fetch it again"},
    {"runtime.load.library",
     "if you trust this library, allow its path: tilewright run --allow-library PATH, "
     "tw_module_open_with_libraries, Module(path, libraries=[...])"},
    {"runtime.run.library_failed",
     "see what the number means where the library is described (libtilewright_images.so: "
     "deploy/docs/custom_operators.md)"},
    {"op.external", "only 'tilewright run' computes such operators: compare outputs by --expect"},
    {"op.custom.attribute",
     "compare the node's attributes with those that its definition states (--operators FILE)"},
    {"op.custom.syntax",
     "correct the definition at this place; deploy/docs/custom_operators.md has the grammar"},
    {"op.custom.name",
     "give one definition for each operator and number of operands, and one name for each thing "
     "in it (--operators FILE)"},
    {"op.custom.type",
     "write a cast in the definition, or allow this element type (type T in f32, ...;)"},
    {"op.custom.limit", "make the definition smaller, or two operators of it"},
    {"op.custom.symbolic", "give numbers instead of ranges: --shape NAME=N"},
    {"op.custom",
     "compare the shapes that the node has with those that its definition states (--operators "
     "FILE)"},
    {"op.", "check the model's shapes and attributes (--shape NAME=1x3x224x224)"},
    {"signing.signature.missing",
     "ask for its release ('tilewright modules release NAME/NUMBER'), or fetch a version that "
     "was released ('tilewright modules list' shows who signed)"},
    {"signing.signature.other_key",
     "give the public key of who released it (--key), or ask that key's owner for a release"},
    {"signing.signature.bytes_only",
     "ask for its release ('tilewright modules release NAME/NUMBER'), or accept a signature of "
     "the bytes alone with --bytes-only"},
    {"signing.signature.revoked", "do not use it: fetch another version, or ask who revoked it"},
    {"module.key.unregistered",
     "ask an administrator to register the public key: 'tilewright modules keys add FILE.pub'"},
    {"module.key.revoked", "release it with another key: a revoked one never counts again"},
    {"log.release_key.revoked", "make a new key: 'tilewright modules keygen FILE'"},
    {"log.release_key.not_found", "'tilewright modules keys list' shows the keys"},
    {"log.module_signature.not_found", "'tilewright modules show NAME/NUMBER' shows who signed it"},
    {"module.signature.revoked", "release another version, or release it with another key"},
    {"module.signature.too_many",
     "revoke releases that count no more: 'tilewright modules revoke'"},
    {"signing.signature.format", "use the version of Tilewright that released it, or a newer one"},
    {"signing.signature", "do not use it: fetch it again, and ask who released it"},
    {"signing.release", "do not release it: ask who runs the server"},
    {"module.digest",
     "do not use it before you know why: 'tilewright modules list' shows which version has those "
     "bytes"},
    {"module.answer", "do not use it: the server is not what it should be"},
    {"module.release.no_key", "sign it yourself: --key FILE ('tilewright modules keygen FILE')"},
    {"module.resolve.not_measured", "'tilewright modules list' shows which versions have a time"},
    {"signing.file", "fetch the module and its signature again"},
    {"signing.key.exists", "use it, or choose another file"},
    {"signing.key.kind", "'tilewright modules keygen FILE' makes a key that fits"},
    {"module.alias", "lower-case letters, digits and .-_, as in 'stable' or 'v1.2'"},
    {"module.not_found.too_slow", "allow more time, or tune it again"},
    {"module.not_found", "'tilewright modules list' shows what there is"},
    {"log.task.not_found",
     "give a task, 4 digits of its hash, a launch or an ONNX node; for a launch of a module that "
     "another job made: --module MODULE.tw"},
    {"log.open.version",
     "a log of an older version is brought up to date by what writes to it (tilewright tune --log, "
     "or the server that it belongs to); one of a newer version needs that version"},
    {"log.check.damaged",
     "restore a backup ('tilewright backup restore'), or keep what is whole: 'tilewright log "
     "export "
     "--skip-damaged -o FILE', then 'tilewright log import FILE' into a new log"},
    {"log.row.damaged", "'tilewright log check --log FILE' says what is whole and how to keep it"},
    {"log.open.in_use",
     "wait until it has ended, or stop it; into the log of a running server, import with --server"},
    {"log.module_version.pruned", "'tilewright modules list' shows what is there"},
    {"module.file", "the module is damaged: compile or fetch it again"},
    {"module.manifest",
     "the module is damaged or newer than this program: compile or fetch it again"},
    {"run.sandbox.unavailable",
     "use a kernel with seccomp and namespaces for users ('tilewright devices get' of an agent "
     "says the same), or run a module that you trust without --sandbox"},
    {"run.sandbox.weak",
     "use a kernel with Landlock and namespaces for users, or add --allow-weak-sandbox if what is "
     "left is enough for this module"},
    {"run.bridge",
     "try the command by hand: it must start tilewright-worker there, carry bytes both ways and "
     "print nothing else (deploy/ops/devices.md, Bridges)"},
    {"run.timeline.sandbox", "run a module that you trust without --sandbox"},
    {"runtime.device.no_trace", "name a device that can by --device, such as a simulator"},
    {"runtime.device.unsupported", "name another device by --device"},
    {"run.sandbox.too_large", "run a module that you trust without --sandbox"},
    {"run.sandbox.open_sizes",
     "compile the model at fixed sizes (--shape), or run a module that you trust without "
     "--sandbox"},
    {"run.sandbox.device", "run a module that you trust without --sandbox"},
    {"run.sandbox", "run it again; if it stays, report it with this text"},
    {"run.code",
     "do not trust the module: compile or fetch it again. --key FILE checks who released it, "
     "--sandbox keeps its code away from your files"},
    {"codegen.link.libm", "install the package, and compile again"},
    {"codegen.target.threads", "compile with threads=1"},
    {"codegen.buffer.too_large", "compile for a target with addresses of 64 bits"},
    {"runtime.code.format",
     "compile the module for this machine (--target native), or run it on a machine of its kind: "
     "--bridge COMMAND; modules of WebAssembly run in JavaScript (deploy/javascript)"},
    {"runtime.load.cpu_features",
     "compile the module for this machine (--target native), or run it on the machine that it is "
     "for (--bridge)"},
    {"runtime.load.device_features",
     "run it on a device that has this, or compile a model of other element types"},
    {"runtime.tensor_pb", "give an ONNX TensorProto (.pb) or NumPy (.npy) file"},
    {"runtime.npy", "give an ONNX TensorProto (.pb) or NumPy (.npy) file"},
    {"rpc.tls.wanted",
     "give --identity FOLDER or TILEWRIGHT_IDENTITY; an administrator issues one ('tilewright "
     "certs "
     "issue')"},
    {"rpc.tls.plain",
     "leave out --identity and TILEWRIGHT_IDENTITY if plain text is meant; else check --server"},
    {"rpc.tls.identity",
     "is it an identity of this fleet, and has it ended or been revoked? 'tilewright certs show' "
     "says; the server's log says why"},
    {"rpc.tls",
     "is it the right server? ca.pem of the identity must hold its authority, and its "
     "certificate must name the host that was dialled ('tilewright certs show')"},
    {"rpc.",
     "is the server running at that address? Check --server or TILEWRIGHT_SERVER; a server "
     "with TLS wants --identity"},
    {"certs.authority.missing", "'tilewright certs init AUTHORITY' makes one"},
    {"certs.authority.exists",
     "use it, choose another folder, or 'tilewright certs rotate AUTHORITY'"},
    {"certs.identity.exists",
     "'tilewright certs renew AUTHORITY IDENTITY', or choose another folder"},
    {"enrol.hours", "see 'tilewright certs ticket --help'"},
    {"enrol.file", "give --file the tickets of 'tilewright certs ticket', or a new file"},
    {"backup.", "see 'tilewright backup --help'"},
    {"tokens.id", "'tilewright tokens list --file FILE' shows the ids"},
    {"tokens.role", "see 'tilewright tokens create --help'"},
    {"tokens.", "see 'tilewright tokens --help'"},
    {"audit.", "keep a copy of the file, and find out who could write it"},
    {"auth.token",
     "ask an administrator for a token ('tilewright tokens create'); it goes into the "
     "file 'token' of the identity, or TILEWRIGHT_TOKEN"},
    {"auth.admin", "ask an administrator, or ask for less (--priority 2)"},
    {"auth.role", "ask an administrator for a token with a role that may ('tilewright tokens')"},
    {"auth.certificate.revoked", "ask an administrator for a new identity ('tilewright certs')"},
    {"auth.certificate.unnamed",
     "ask for a certificate with exactly one URI, spiffe://tilewright/KIND/NAME ('tilewright certs "
     "issue' makes such)"},
    {"auth.certificate", "use the token that belongs to this certificate (--identity)"},
    {"auth.rate", "wait a moment, and ask less often"},
    {"auth.", "ask an administrator"},
    {"certs.", "see 'tilewright certs --help'"},
    {"identity.key.permissions", "chmod 600 the file; if others may have read it, renew it"},
    {"identity.", "issue or renew it: 'tilewright certs --help'"},
    {"artifact", "try again; if it stays, look at the server's log"},
    {"cli.bench.modules", "give two modules that were compiled from one model, with one --shape"},
    {"cli.mismatch.slower",
     "see which kernels are slower with --profile; race longer with --seconds if the interval is "
     "wide"},
    {"cli.ram.exceeded",
     "compile a smaller input or batch (--shape), or an int8 model; what takes most is named "
     "above"},
    {"cli.stdout", "write to a place with room, or into a pipe whose reader stays"},
    {"cli.embedded.locked", "wait for the other one to end, or give --state-dir another folder"},
    {"codegen.device_compiler",
     "install it where you compile; --dump-ir FOLDER writes the code as text without it"},
    {"codegen.device_library",
     "install it where you compile; models without such functions need none"},
    {"runtime.device.lost",
     "run it again; if it stays, look into the driver's log, and restart the driver"},
    {"runtime.device.missing", "install the plug-in, or name its folder by TILEWRIGHT_PLUGIN_DIR"},
    {"runtime.device.none", "install the device's driver, or compile for a kind that is here"},
    {"runtime.load.open_sizes",
     "compile the model again with this version, or at fixed sizes (--shape NAME=1x3x224x224)"},
    {"runtime.load.devices", "compile the parts of the model into modules of their own"},
    {"cli.embedded.target",
     "tune for this machine (--target native), give --bridge COMMAND that runs a worker on such a "
     "device, or --server of a fleet that has one"},
    {"cli.embedded.job",
     "the errors of trials name the cause; 'tilewright log stats --log FILE' and 'tilewright "
     "report "
     "--log FILE' with the tuning log named above show the rest, the log files what the services "
     "said"},
    {"cli.embedded.unwell",
     "what was measured is in the log: use the machine for nothing else and tune again; agent.log "
     "in "
     "the state folder says what failed"},
    {"cli.embedded", "look at the log files in the state folder named above"},
    {"cli.interrupted", "start it again when you like: measurements are kept in the log"},
    {"device.forget", "stop its agent, release it or wait for its work, then try again"},
    {"agent.devices.too_many",
     "give the agent fewer devices, or the tracker a greater --max-devices-per-agent"},
    {"job.shape", "give sizes from 1 on: --shape NAME=1x3x224x224, --shape NAME=8 or NAME=1..64"},
    {"job.specialise",
     "say at which sizes to tune, all of them in each point: --shape batch=1..32 --specialise "
     "batch=1,8,32 (at others the module runs default schedules)"},
    {"job.name", "give the file or the job a name of printable characters"},
    {"job.", "see 'tilewright jobs get JOB' and 'tilewright log stats JOB' for what happened"},
    {"log.model.pruned",
     "each job's last model is still there ('tilewright log stats --model' lists them); "
     "tilewright-tuner --keep-search-jobs keeps the others of more jobs"},
    {"cli.log.source", "give --log FILE or --server HOST:PORT"},
    {"codegen.target.unsupported",
     "compile for one of 'tilewright targets'; this version makes no code for others"},
    {"builder.", "run it again; if it stays, report the model and this text"},
    {"file.sibling",
     "install the program in the same folder: the package tilewright has the compiler "
     "(tilewright-builder); 'tune' without --server also needs the packages tilewright-tracker, "
     "tilewright-tuner and tilewright-agent"},
    {"process.start", "install all programs of Tilewright in the same folder"},
};

constexpr size_t kMaxLine = 2000;

// Line breaks become blanks, runs of blanks one; nothing is left that a terminal would obey.
std::string OneLine(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool blank = c == ' ' || (c >= '\t' && c <= '\r');
    if (blank && (out.empty() || out.back() == ' ')) continue;
    out.push_back(blank ? ' ' : c);
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return support::Printable(out.size() > kMaxLine ? out.substr(0, kMaxLine) + "..." : out);
}

}  // namespace

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  const std::string slug = support::Slug(status);
  for (const char* usage : {"cli.usage", "ir.target", "graph.pass.unknown", "graph.pass.fixed",
                            "certs.kind", "certs.name", "certs.host", "certs.days",
                            "quantize.ranges", "tokens.role", "tokens.days"}) {
    if (slug.starts_with(usage)) return kExitUsage;
  }
  for (const char* mismatch : {"cli.mismatch", "signing.signature", "signing.file.other_module",
                               "signing.release", "module.digest", "module.answer"}) {
    if (slug.starts_with(mismatch)) return kExitMismatch;
  }
  if (slug == "cli.stdout.closed") return kExitOk;  // "| head" has seen enough
  if (slug.starts_with("rpc.tls")) return kExitUnavailable;
  // A child of ours, not something the user named or a server that is away.
  if (slug.starts_with("file.sibling") || slug.starts_with("builder.")) return kExitFailed;
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnavailable;
    default:
      return kExitFailed;
  }
}

std::string Advice(const absl::Status& status) {
  const std::string slug = support::Slug(status);
  for (const AdviceRow& row : kAdvice) {
    if (slug.starts_with(row.slug_prefix)) return std::string(row.text);
  }
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return "check the name or path";
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return "is the server running at that address? Check --server or TILEWRIGHT_SERVER";
    case absl::StatusCode::kResourceExhausted:
      return "free some space or memory, or choose a place that can be written to, then run the "
             "command "
             "again: nothing was left behind";
    case absl::StatusCode::kPermissionDenied:
      return "choose a place you may write to, then run the command again: nothing was left behind";
    case absl::StatusCode::kUnimplemented:
      return "the server is older than this program and cannot do this: upgrade it";
    case absl::StatusCode::kDataLoss:
      return "the file is damaged: make or fetch it again";
    case absl::StatusCode::kInvalidArgument:
      return "see 'tilewright COMMAND --help'";
    default:
      return "run it again; if it stays, report it with this text";
  }
}

std::string ErrorText(std::string_view command, std::string_view what, const absl::Status& status) {
  return support::StrCat("tilewright ", command, ": ", OneLine(what),
                         "\n  why: ", OneLine(support::StatusText(status)),
                         "\n  do:  ", Advice(status), "\n");
}

int Finish(std::string_view command, std::string_view what, const absl::Status& status) {
  if (!status.ok() && support::Slug(status) != "cli.stdout.closed") {
    std::fflush(stdout);
    const std::string text = ErrorText(command, what, status);
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
  return ExitCodeOf(status);
}

int FinishOutput(std::string_view command, int code) {
  if (code != kExitOk) return code;
  return Finish(command, "cannot write standard output", StdoutStatus());
}

}  // namespace tilewright::cli
