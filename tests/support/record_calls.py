"""gRPC calls as bytes, without knowing any message: a proxy that keeps what passes, and the calls again.

    python3 tests/support/record_calls.py OLD_BUILD OUT.json MODEL.onnx

records what the command line, tuner and agent of OLD_BUILD send in one short job (see tests/e2e/old_client.py).
"""

import base64
import json
import subprocess
import sys
import tempfile
import time
from concurrent import futures
from pathlib import Path

import grpc

KEPT = 3  # calls of each method
TARGET = "native,threads=1"


def identity(data):
    return data


class Recorder(grpc.GenericRpcHandler):
    """Listens on `address` and passes everything on to `target`."""

    def __init__(self, target):
        self.channel = grpc.insecure_channel(target)
        self.calls = []
        self.server = grpc.server(futures.ThreadPoolExecutor(max_workers=32))
        self.server.add_generic_rpc_handlers((self,))
        self.address = "127.0.0.1:%d" % self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def service(self, details):
        def passed_on(requests, context):
            kept = []
            self.calls.append({"method": details.method, "requests": kept})

            def noted():
                for request in requests:
                    kept.append(base64.b64encode(request).decode())
                    yield request

            try:
                yield from self.channel.stream_stream(
                    details.method, request_serializer=identity, response_deserializer=identity)(
                        noted(), timeout=context.time_remaining())
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())

        return grpc.stream_stream_rpc_method_handler(passed_on, identity, identity)

    def first(self):
        """The first calls of each method, in order."""
        seen, out = {}, []
        for call in self.calls:
            seen[call["method"]] = seen.get(call["method"], 0) + 1
            if seen[call["method"]] <= KEPT and call["requests"]:
                out.append(call)
        return out


def again(channel, call):
    """The answers to a recorded call; grpc.RpcError as the server has it."""
    requests = [base64.b64decode(r) for r in call["requests"]]
    method = channel.stream_stream(call["method"], request_serializer=identity, response_deserializer=identity)
    return list(method(iter(requests), timeout=120))


def record(build, model):
    state = Path(tempfile.mkdtemp(prefix="tilewright-record-"))
    children = []

    def start(name, *flags):
        port = state / (name + ".port")
        children.append(subprocess.Popen([build / "bin" / ("tilewright-" + name), "--state-dir", state / name,
                                          "--port-file", port, *flags],
                                         stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        while not port.exists() or not port.read_text():
            time.sleep(0.05)
        return port.read_text().strip()

    try:
        tracker = Recorder(start("tracker"))
        tuner = Recorder(start("tuner", "--tracker", tracker.address))
        start("agent", "--tracker", tracker.address, "--device", "cpu", "--allow-weak-sandbox")
        run = [build / "bin" / "tilewright"]
        subprocess.run([*run, "tune", model, "--target", TARGET, "--trials", "6", "--name", "old", "--server",
                        tuner.address, "-o", state / "old.tw"], check=True)
        for question in (["jobs", "get", "old"], ["jobs", "list"], ["devices", "list"], ["modules", "list"],
                         ["log", "export"]):
            subprocess.run([*run, *question, "--server", tuner.address], check=True, stdout=subprocess.DEVNULL)
        return {"tracker": tracker.first(), "tuner": tuner.first()}
    finally:
        for child in reversed(children):
            child.terminate()
            child.wait(30)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(record(Path(sys.argv[1]).resolve(), sys.argv[3]), indent=1) + "\n")
