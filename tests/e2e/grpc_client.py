#!/usr/bin/env python3
"""A stock gRPC client, with nothing generated from this repository: learns the services by reflection,
checks health, uploads a model, submits a job, watches it, resolves and streams the module; the module
runs in a folder with only the runtime library."""
# Measures: a device is used in it, and no time is judged.

import ctypes
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import grpc
import numpy as np
import onnx
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BUILD, PYTHON, ROOT, Fleet, expected_output, make_models, run_checks  # noqa: E402

GRPC_PROTOS = "/usr/share/grpc-proto"
fleet = Fleet(threads=1)
state = {}


class Reflection:
    """Calls any method of a server after asking the server itself for the descriptors."""

    def __init__(self, address):
        folder = Path(tempfile.mkdtemp(dir=fleet.state))
        subprocess.run(["protoc", "-I", GRPC_PROTOS, f"--python_out={folder}",
                        "grpc/reflection/v1/reflection.proto", "grpc/health/v1/health.proto"], check=True)
        # The generated folder must not hide the gRPC package itself.
        (folder / "grpc").rename(folder / "standard_protos")
        sys.path.insert(0, str(folder))
        from standard_protos.reflection.v1 import reflection_pb2
        from standard_protos.health.v1 import health_pb2
        self.reflection, self.health = reflection_pb2, health_pb2
        self.channel = grpc.insecure_channel(address)
        grpc.channel_ready_future(self.channel).result(timeout=120)
        self.pool = descriptor_pool.DescriptorPool()
        self.added = set()

    def _ask(self, version="v1", **request):
        call = self.channel.stream_stream(
            "/grpc.reflection.%s.ServerReflection/ServerReflectionInfo" % version,
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=self.reflection.ServerReflectionResponse.FromString)
        return next(iter(call(iter([self.reflection.ServerReflectionRequest(**request)]), timeout=120)))

    def services(self, version="v1"):
        return [s.name for s in self._ask(version, list_services="").list_services_response.service]

    def _load(self, files):
        parsed = [descriptor_pb2.FileDescriptorProto.FromString(f) for f in files]
        for proto in parsed:
            self._add(proto, {p.name: p for p in parsed})

    def _add(self, proto, others):
        if proto.name in self.added:
            return
        for dependency in proto.dependency:
            if dependency in self.added:
                continue
            if dependency in others:
                self._add(others[dependency], others)
            else:
                self._load(self._ask(file_by_filename=dependency).file_descriptor_response.file_descriptor_proto)
        if proto.name not in self.added:
            self.pool.Add(proto)
            self.added.add(proto.name)

    def method(self, service, name):
        if service not in getattr(self, "known", set()):
            reply = self._ask(file_containing_symbol=service)
            self._load(reply.file_descriptor_response.file_descriptor_proto)
        method = self.pool.FindServiceByName(service).methods_by_name[name]
        factory = message_factory.MessageFactory(self.pool)
        request, response = factory.GetPrototype(method.input_type), factory.GetPrototype(method.output_type)
        proto = descriptor_pb2.MethodDescriptorProto()
        method.CopyToProto(proto)
        kind = (f"{'stream' if proto.client_streaming else 'unary'}_"
                f"{'stream' if proto.server_streaming else 'unary'}")
        return request, getattr(self.channel, kind)(
            f"/{service}/{name}", request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=response.FromString)

    def call(self, service, method, timeout=120, **fields):
        request, call = self.method(f"tilewright.v1.{service}", method)
        return call(request(**fields), timeout=timeout)


def services_are_listed_by_reflection():
    fleet.start_all()
    state["client"] = client = Reflection(fleet.tuner_address)
    services = client.services()
    for name in ("JobService", "ModuleService", "ArtifactService", "FleetAdminService"):
        assert f"tilewright.v1.{name}" in services, services
    assert "grpc.health.v1.Health" in services, services
    # Older tools ask by the older name; messages and answers are the same.
    assert sorted(client.services("v1alpha")) == sorted(services), services


def health_is_serving():
    client = state["client"]
    check = client.channel.unary_unary(
        "/grpc.health.v1.Health/Check", request_serializer=lambda m: m.SerializeToString(),
        response_deserializer=client.health.HealthCheckResponse.FromString)
    for service in ("", "tilewright.v1.JobService", "tilewright.v1.ModuleService"):
        reply = check(client.health.HealthCheckRequest(service=service), timeout=120)
        assert reply.status == client.health.HealthCheckResponse.SERVING, service


def job_is_submitted_and_watched_to_its_end():
    client = state["client"]
    case = state["case"] = make_models(fleet.state / "models", "dqn") / "dqn"
    model = (case / "model.onnx").read_bytes()
    digest = {"algorithm": "sha256", "hash": hashlib.sha256(model).digest(), "size_bytes": len(model)}
    # The model is larger than one message may be: streamed.
    request, write = client.method("tilewright.v1.ArtifactService", "Write")
    step = 1 << 20

    def chunks():
        for offset in range(0, len(model), step):
            data = model[offset:offset + step]
            yield request(digest=digest if offset == 0 else None, offset=offset, data=data,
                          finish=offset + len(data) == len(model))
    written = write(chunks(), timeout=300)
    assert written.complete and written.committed_size == len(model)
    target = fleet.cli("targets").stdout
    target = next(w for w in target.split() if w.startswith("cpu,arch="))
    job = client.call("JobService", "CreateJob", parent="projects/default",
                      job={"model": digest, "target": target.split(",threads=")[0] + ",threads=1", "seed": 3,
                           "budget": {"max_trials": 24}})
    assert job.name.startswith("projects/default/jobs/"), job
    # From the beginning: however fast the job was, each trial's end is told once.
    kinds = Counter()
    for event in client.call("JobService", "WatchJob", name=job.name, cursor="0", timeout=600):
        kind = event.WhichOneof("event")
        kinds["winner again" if kind == "trial" and event.trial.winner_again else kind] += 1
        if event.WhichOneof("event") == "job":
            job = event.job
    assert kinds["trial"] == 24 and kinds["job"] >= 1, kinds
    job = client.call("JobService", "GetJob", name=job.name)
    states = {v.number: v.name for v in job.DESCRIPTOR.enum_types_by_name["State"].values}
    assert states[job.state] == "SUCCEEDED", (states[job.state], job.state_reason)
    state["job"] = job


def module_is_streamed_with_the_digest_its_version_names():
    client = state["client"]
    version = client.call("ModuleService", "GetModuleVersion", name=state["job"].published_module)
    wanted = version.files[0].digest
    data = b"".join(chunk.data for chunk in client.call("ArtifactService", "Read", digest={
        "algorithm": "sha256", "hash": wanted.hash, "size_bytes": wanted.size_bytes}, timeout=300))
    assert hashlib.sha256(data).digest() == wanted.hash and len(data) == wanted.size_bytes
    state["module"] = data
    resolved = client.call("ModuleService", "ResolveModule", parent="projects/default",
                           model={"algorithm": "sha256", "hash": version.model.hash,
                                  "size_bytes": version.model.size_bytes})
    assert resolved.version.name == version.name, resolved


def module_runs_in_a_folder_with_only_the_runtime_library():
    case = state["case"]
    folder = Path(tempfile.mkdtemp(prefix="tilewright-alone-"))
    try:
        (folder / "model.tw").write_bytes(state["module"])
        shutil.copy(BUILD / "lib/libtilewright_runtime.so", folder)
        shutil.copy(ROOT / "deploy/bindings/python/tilewright_runtime.py", folder)
        program = ("import sys, numpy as np, tilewright_runtime as tw; "
                   "s = tw.Session(tw.Module('model.tw'), 1); "
                   "np.save('out.npy', s.run({'input': np.load('in.npy')})['output'])")
        value = numpy_helper.to_array(onnx.load_tensor(str(case / "test_data_set_0/input_0.pb")))
        np.save(folder / "in.npy", value)
        subprocess.run([PYTHON, "-c", program], cwd=folder, env={"PATH": "/usr/bin:/bin"}, check=True)
        actual = np.load(folder / "out.npy").astype(np.float64)
        expected = numpy_helper.to_array(onnx.load_tensor(str(expected_output(case)))).astype(np.float64)
        assert np.linalg.norm(actual - expected) <= 1e-5 * np.linalg.norm(expected)
        ctypes.CDLL(str(folder / "libtilewright_runtime.so"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def errors_carry_codes():
    client = state["client"]
    try:
        client.call("JobService", "GetJob", name="projects/default/jobs/no-such-job")
        raise AssertionError("GetJob of a job that does not exist succeeded")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND, error


if __name__ == "__main__":
    try:
        run_checks(services_are_listed_by_reflection, health_is_serving, job_is_submitted_and_watched_to_its_end,
                   module_is_streamed_with_the_digest_its_version_names,
                   module_runs_in_a_folder_with_only_the_runtime_library, errors_carry_codes)
    finally:
        fleet.__exit__(None, None, None)
