#!/usr/bin/env python3
"""A model of open sizes is tuned at two points through tracker, tuner and agent: its kernels there are measured, equal sizes are
recalled, the module computes what the NumPy evaluator does at every size, and pipelines find it by the sizes that they need. A decoder with state likewise.

    open_tuning.py [--build DIR]        DIR (default: TILEWRIGHT_BUILD_DIR or build/release) has bin/
"""
# Measures: a device is used in it, and no time is judged.

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy
import onnx
import onnx.numpy_helper

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "support"), str(ROOT / "models"), str(ROOT.parent / "deploy/bindings/python")]
import cli_case  # noqa: E402
from cli_case import FAILED, NOT_FOUND, OK  # noqa: E402
from decoder_models import Config, Decoder  # noqa: E402
from fleet import BIN  # noqa: E402
from numpy_eval import evaluate  # noqa: E402
from open_models import MODELS  # noqa: E402

os.environ.setdefault("TILEWRIGHT_RUNTIME_LIBRARY", str(BIN.parent / "lib" / "libtilewright_runtime.so"))
import tilewright_runtime as tw  # noqa: E402

TRIALS = 8
SIZES = ["--shape", "batch=1..32", "--specialise", "batch=1,8"]
WORDS = "batch=1..32, specialised at batch=1; batch=8"


class OpenTuning(cli_case.Fleet):
    def tune(self, *more, model="mlp.onnx", code=OK):
        done = self.call("tune", model, "--target", "native,threads=1", "--trials", str(TRIALS), "-o", "m.tw", "--format", "json",
                         *self.server, *more)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout) if code == OK else done.stderr

    def shown(self, *words, code=OK):
        done = self.call(*words, *self.server, "-o", "json")
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout) if code == OK else done.stderr

    def check_every_size(self):
        """Points take the tuned functions, others that of all sizes; all compute the same."""
        model = onnx.load(self.path("mlp.onnx"))
        rng = numpy.random.default_rng(5)
        for batch, function in ((1, "at_batch_1"), (5, "main"), (8, "at_batch_8"), (32, "main")):
            x = rng.standard_normal((batch, 64)).astype(numpy.float32)
            numpy.save(self.path("x.npy"), x)
            said = json.loads(self.good("run", "m.tw", "--input", "x=x.npy", "--output-dir", "out", "--repeat", "1", "-o", "json"))
            self.assertEqual(said["function"], function)
            tensor = onnx.TensorProto()
            tensor.ParseFromString(Path(self.path("out/output_0.pb")).read_bytes())
            wanted = next(iter(evaluate(model, {"x": x}).values()))
            self.assertLess(numpy.abs(onnx.numpy_helper.to_array(tensor) - wanted).max(), 1e-5 * numpy.abs(wanted).max(), batch)

    def check_finding(self, first):
        """By sizes: within the range, at a point, and not outside."""
        for sizes in (["batch=8"], ["batch=20"], ["batch=2..16"], SIZES[1:]):
            found = self.shown("modules", "resolve", "mlp", "--shape", *sizes)
            self.assertEqual((found["name"], found["files"][0]["sha256"]), (first["published_module"], first["sha256"]), sizes)
        for sizes in (["batch=64"], ["batch=1..64"], ["batch=1..32", "--specialise", "batch=4"]):
            self.assertIn("module.not_found", self.shown("modules", "resolve", "mlp", "--shape", *sizes, code=NOT_FOUND))
        self.good("modules", "fetch", "--model", "mlp.onnx", *SIZES, "-o", "fetched.tw", *self.server)
        self.assertEqual(Path(self.path("fetched.tw")).read_bytes(), Path(self.path("m.tw")).read_bytes())
        version = self.shown("modules", "show", "mlp/1")
        self.assertEqual(version["sizes"], {"open": {"batch": [1, 32]}, "points": [{"batch": 1}, {"batch": 8}]})
        self.assertEqual(len({record["measurement_id"] for record in version["records"]}), 4, "a measurement of each tuned kernel")
        self.assertIn(WORDS, self.good("modules", "list", *self.server))

    def check_errors(self):
        for flags, slug in ((["--shape", "batch=1..32"], "job.specialise.missing"),
                            (["--shape", "batch=1..32", "--specialise", "batch=33"], "driver.specialise.size"),
                            (["--shape", "batch=1..32", "--specialise", "width=3"], "driver.specialise.name"),
                            (["--shape", "batch=8", "--specialise", "batch=8"], "driver.specialise.fixed")):
            said = self.tune(*flags, code=FAILED)
            self.assertIn(slug, said)
            self.assertIn("do: ", said)

    def test_a_model_is_tuned_at_its_points(self):
        onnx.save(MODELS["mlp"][0](), self.path("mlp.onnx"))
        first = self.tune(*SIZES, "--name", "first")
        self.assertEqual((first["state"], first["progress"]["measured"]), ("SUCCEEDED", TRIALS))
        tasks = {task["description"]: task for task in first["tasks"]}
        self.assertEqual(set(tasks), {"dense_add_relu 1x64 → 1x128", "dense_add 1x128 → 1x10",
                                      "dense_add_relu 8x64 → 8x128", "dense_add 8x128 → 8x10"})
        records = [json.loads(line) for line in self.good("log", "export", "first", *self.server).splitlines()]
        measured = {record["task"] for record in records if record.get("outcome") == "OK"}
        self.assertEqual(measured, {task["name"].split("/")[-1] for task in first["tasks"]})
        self.assertEqual(self.shown("jobs", "get", "first")["sizes"]["open"], {"batch": [1, 32]})
        self.assertIn(WORDS, self.good("jobs", "get", "first", *self.server))
        self.assertIn(WORDS, self.good("log", "stats", "first", "--log", "tuner/tuner.db"))
        self.check_every_size()
        self.check_finding(first)

        again = self.tune(*SIZES, "--name", "again")
        self.assertEqual((again["progress"]["measured"], again["sha256"]), (0, first["sha256"]))
        # Kernels of one point serve other sets of points, and modules that are compiled here.
        fewer = self.tune("--shape", "batch=1..16", "--specialise", "batch=8", "--name", "fewer")
        self.assertGreaterEqual(fewer["progress"]["cached"], 2)
        self.assertEqual(fewer["progress"]["measured"], TRIALS - fewer["progress"]["cached"])
        self.assertNotEqual(fewer["published_module"], first["published_module"])
        compiled = json.loads(self.good("compile", "mlp.onnx", "--target", "native,threads=1", "--log", "tuner/tuner.db", "--effort", "0",
                                        "--require-tuned", "100", "-o", "c.tw", "--format", "json", *SIZES))
        self.assertEqual({kernel["task_name"]: kernel["tuned"] for kernel in compiled["kernels"]},
                         {**{name: True for name in tasks}, "dense_add_relu batchx64 → batchx128": False,
                          "dense_add batchx128 → batchx10": False})
        self.check_errors()

    def test_a_decoder_with_state_is_tuned_where_its_sizes_are_fixed(self):
        """One token a run: only the attention depends on how many there were before."""
        decoder = Decoder(Config(form="grouped"))
        onnx.save(decoder.model(), self.path("decoder.onnx"))
        sizes = [word for flag in decoder.shape_flags("0..24", "1") for word in ("--shape", flag)]
        tuned = self.tune(*sizes, "--state", "known", "--name", "decoder", model="decoder.onnx")
        self.assertEqual((tuned["state"], tuned["progress"]["measured"]), ("SUCCEEDED", TRIALS))
        for task in tuned["tasks"]:
            self.assertNotIn("length", task["description"])
        self.assertTrue(self.shown("jobs", "get", "decoder")["sizes"]["known_states"])
        name = tuned["published_module"].split("/")[3]
        self.shown("modules", "resolve", name, "--state", "known")
        self.shown("modules", "resolve", name, "--state", "past_key_values.0.key=present.0.key", code=NOT_FOUND)
        session = tw.Session(tw.Module(self.path("m.tw")), 1)
        tokens = numpy.random.default_rng(3).integers(0, decoder.config.vocab, (1, 12)).astype(numpy.int64)
        wanted = decoder.logits(tokens)
        for at in range(12):
            found = session.run(decoder.feeds(tokens[:, at:at + 1], at))["logits"][:, 0]
            self.assertLess(numpy.abs(found - wanted[:, at]).max(), 2e-5 * numpy.abs(wanted).max(), at)


class OlderServer(cli_case.Case):
    """A server from before open sizes reads none, and says the job back without them."""

    NEW_FIELDS = ("open_sizes", "specialise", "states", "known_states")

    def setUp(self):
        super().setUp()
        protos = str(ROOT.parent / "proto")
        files = sorted(str(path.relative_to(protos)) for path in Path(protos).glob("tilewright/v1/*.proto"))
        subprocess.run(["protoc", "-I", protos, "--python_out=" + self.folder, *files], check=True)
        sys.path.insert(0, self.folder)
        from tilewright.v1 import artifact_pb2, job_pb2
        self.asked = []

        def create(request, context):
            self.asked.append(request)
            job = job_pb2.Job.FromString(request.job.SerializeToString())
            for field in self.NEW_FIELDS:
                job.ClearField(field)
            job.name = "projects/default/jobs/old"
            return job

        def handler(service, method, call, request):
            one = grpc.unary_unary_rpc_method_handler(call, request.FromString, lambda message: message.SerializeToString())
            return grpc.method_handlers_generic_handler("tilewright.v1." + service, {method: one})

        self.grpc = grpc.server(ThreadPoolExecutor(2))
        self.grpc.add_generic_rpc_handlers((
            handler("JobService", "CreateJob", create, job_pb2.CreateJobRequest),
            handler("ArtifactService", "FindMissing", lambda *_: artifact_pb2.FindMissingResponse(), artifact_pb2.FindMissingRequest)))
        self.server = ["--server", "127.0.0.1:%d" % self.grpc.add_insecure_port("127.0.0.1:0")]
        self.grpc.start()
        self.addCleanup(lambda: self.grpc.stop(0).wait())
        onnx.save(MODELS["mlp"][0](), self.path("mlp.onnx"))

    def submit(self, *sizes):
        return self.call("jobs", "submit", "mlp.onnx", "--target", "cpu,arch=x86_64,cpu=x86-64,threads=1", *self.server, *sizes)

    def test_it_gets_no_job_that_it_would_misread(self):
        done = self.submit(*SIZES)
        self.assertEqual(done.returncode, FAILED, done.stdout + done.stderr)
        self.assertIn("cli.server.sizes", done.stderr)
        self.assertIn("do: ", done.stderr)
        self.assertEqual([request.validate_only for request in self.asked], [True])
        done = self.submit("--shape", "batch=8")
        self.assertEqual(done.returncode, OK, done.stdout + done.stderr)
        self.assertEqual([request.validate_only for request in self.asked], [True, False])


if __name__ == "__main__":
    sys.exit(cli_case.run_cases(sys.modules[__name__]))
