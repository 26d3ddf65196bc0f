"""Runtimes that run an ONNX model beside ours, from their published Python packages.

A peer is a class with `name`, `package` (to import and to tell the version of), a constructor
(model path, threads, feeds) and `run() -> first output`. One that cannot take a model raises; the race says
so in its row and goes on. To add one: a class, its place in PEERS.
"""
import importlib
import importlib.metadata


def onnx_runtime_session(model, threads=0):
    """threads: 0 for as many as ONNX Runtime likes."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    # Without it sums of two products of bytes saturate at 16 bits on processors without VNNI: other outputs.
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


class OnnxRuntime:
    name, package = "onnxruntime", "onnxruntime"

    def __init__(self, model, threads, feeds):
        self.session = onnx_runtime_session(model, threads)
        self.feeds = feeds

    def run(self):
        return self.session.run(None, self.feeds)[0]


class OpenVino:
    name, package = "openvino", "openvino"

    def __init__(self, model, threads, feeds):
        import openvino
        core = openvino.Core()
        compiled = core.compile_model(str(model), "CPU", {
            "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"})
        self.request = compiled.create_infer_request()
        self.feeds = [feeds[i.get_any_name()] for i in compiled.inputs]
        self.output = compiled.outputs[0]

    def run(self):
        return self.request.infer(self.feeds, share_inputs=True, share_outputs=True)[self.output]


class PyTorch:
    """Through onnx2torch; torch.compile where a C++ compiler is there for it, else eager."""
    name, package = "pytorch", "torch"

    def __init__(self, model, threads, feeds):
        import onnx2torch
        import torch
        torch.set_num_threads(threads)
        self.threads, self.torch = threads, torch
        module = onnx2torch.convert(str(model)).eval()
        self.feeds = [torch.from_numpy(value) for value in feeds.values()]
        self.module = torch.jit.freeze(torch.jit.trace(module, tuple(self.feeds)))

    def run(self):
        with self.torch.inference_mode():
            result = self.module(*self.feeds)
        return (result[0] if isinstance(result, (tuple, list)) else result).numpy()


class Tvm:
    """Relax with its default CPU schedules: untuned, as a user gets it before hours of tuning."""
    name, package = "tvm", "apache-tvm"

    def __init__(self, model, threads, feeds):
        import onnx
        import tvm
        from tvm import relax
        from tvm.relax.frontend.onnx import from_onnx
        module = from_onnx(onnx.load(str(model)), keep_params_in_input=False)
        tvm.get_global_func("runtime.config_threadpool")(1, threads)  # 1: the big cores
        target = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(),
                                    "num-cores": threads})
        with target:
            module = relax.get_pipeline("zero")(module)
            self.vm = relax.VirtualMachine(tvm.compile(module, target), tvm.cpu())
        self.feeds = [tvm.runtime.tensor(value) for value in feeds.values()]

    def run(self):
        result = self.vm["main"](*self.feeds)
        while not hasattr(result, "numpy"):
            result = result[0]
        return result.numpy()


PEERS = {peer.name: peer for peer in (OnnxRuntime, OpenVino, PyTorch, Tvm)}


def version(peer):
    """Its package's version, or None where it is not installed."""
    try:
        importlib.import_module(peer.package.replace("apache-", ""))
        return importlib.metadata.version(peer.package)
    except ImportError:
        return None
