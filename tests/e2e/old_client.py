#!/usr/bin/env python3
"""Today's servers and the recorded bytes of older clients (tests/e2e/recorded): an agent registers, work is submitted, results are
reported, a job is made, as proto/README.md promises.
Promise R19 of tests/README.md.

    old_client.py [--build DIR]        DIR (default: TILEWRIGHT_BUILD_DIR or build/release) has bin/
"""
# Measures: a device is used in it, and no time is judged.

import base64
import glob
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import cli_case  # noqa: E402
from record_calls import again  # noqa: E402

ANSWERS = {  # method: request and response, streams by their messages
    "AgentService/Sync": ("agent", "SyncRequest", "SyncResponse"),
    "AgentService/ReportResults": ("agent", "ReportResultsRequest", "ReportResultsResponse"),
    "DispatchService/GetPoolLoad": ("dispatch", "GetPoolLoadRequest", "PoolLoad"),
    "DispatchService/SubmitWork": ("dispatch", "SubmitWorkRequest", "SubmitWorkResponse"),
    "DispatchService/PullResults": ("dispatch", "PullResultsRequest", "PullResultsResponse"),
    "ArtifactService/FindMissing": ("artifact", "FindMissingRequest", "FindMissingResponse"),
    "ArtifactService/BatchWrite": ("artifact", "BatchWriteRequest", "BatchWriteResponse"),
    "ArtifactService/Write": ("artifact", "WriteChunk", "WriteResponse"),
    "FleetAdminService/ListDevices": ("fleet_admin", "ListDevicesRequest", "ListDevicesResponse"),
    "JobService/CreateJob": ("job", "CreateJobRequest", "Job"),
    "JobService/GetJob": ("job", "GetJobRequest", "Job"),
    "JobService/ListJobs": ("job", "ListJobsRequest", "ListJobsResponse"),
    "JobService/ListTasks": ("job", "ListTasksRequest", "ListTasksResponse"),
    "ModuleService/ListModuleVersions": ("module", "ListModuleVersionsRequest", "ListModuleVersionsResponse"),
}


class OldClients(cli_case.Case):
    @classmethod
    def setUpClass(cls):
        protos = os.path.join(cli_case.ROOT, "proto")
        cls.generated = tempfile.mkdtemp(prefix="tilewright-protos-")
        cls.addClassCleanup(shutil.rmtree, cls.generated)
        files = sorted(os.path.relpath(p, protos) for p in glob.glob(protos + "/tilewright/v1/*.proto"))
        subprocess.run(["protoc", "-I", protos, "--python_out=" + cls.generated, *files], check=True)
        sys.path.insert(0, cls.generated)

    def message(self, method, which):
        file, *names = ANSWERS[method.removeprefix("/tilewright.v1.")]
        return getattr(importlib.import_module("tilewright.v1.%s_pb2" % file), names[which])

    def send(self, channel, call):
        """The parsed request (the first message) and the parsed answers."""
        request = self.message(call["method"], 0).FromString(base64.b64decode(call["requests"][0]))
        self.assertFalse(self.unknown(request), "today's contract has lost a field of " + call["method"])
        answer = self.message(call["method"], 1)
        return request, [answer.FromString(raw) for raw in again(channel, call)]

    @staticmethod
    def unknown(message):
        """Whether the bytes had fields that the contract does not know (any more)."""
        before = message.ByteSize()
        copy = type(message)()
        copy.CopyFrom(message)
        copy.DiscardUnknownFields()
        return copy.ByteSize() != before

    def calls(self, recorded, method):
        return [c for c in recorded if c["method"].endswith("/" + method)]

    def test_servers_answer_every_recorded_client(self):
        recordings = sorted(glob.glob(os.path.join(cli_case.ROOT, "tests/e2e/recorded/*.json")))
        self.assertTrue(recordings)
        for path in recordings:
            with open(path) as f:
                recorded = json.load(f)
            name = os.path.basename(path)[:-5]
            tracker = cli_case.Daemon(self, "tracker")
            tuner = cli_case.Daemon(self, "tuner", "--tracker", tracker.address)
            with self.subTest(recording=name):
                self.old_tuner_and_agent(grpc.insecure_channel(tracker.address), recorded["tracker"])
                self.old_command_line(grpc.insecure_channel(tuner.address), recorded["tuner"], tuner)
            tuner.stop()
            tracker.stop()

    def old_tuner_and_agent(self, channel, recorded):
        sync = self.calls(recorded, "Sync")
        request, answers = self.send(channel, sync[0])
        self.assertEqual(len(answers), 1)
        self.assertTrue(request.agent)
        devices = self.send(channel, self.calls(recorded, "ListDevices")[0])[1][0].devices
        self.assertEqual({d.name.split("/")[-1] for d in devices},
                         {d.device.split("/")[-1] for d in request.devices})
        self.assertTrue(all(d.agent and d.fingerprint for d in devices), devices)

        lacking = self.send(channel, self.calls(recorded, "FindMissing")[0])[1][0].missing
        self.assertTrue(lacking)
        for call in self.calls(recorded, "BatchWrite"):
            statuses = self.send(channel, call)[1][0].statuses
            self.assertTrue(statuses and all(s.code == 0 for s in statuses), statuses)
        self.assertFalse(self.send(channel, self.calls(recorded, "FindMissing")[0])[1][0].missing)

        for call in self.calls(recorded, "SubmitWork"):
            request, answers = self.send(channel, call)
            kinds = [type(o).DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_number[o.kind].name
                     for o in answers[0].outcomes]
            self.assertEqual(len(kinds), len(request.work_items))
            self.assertTrue(set(kinds) <= {"KIND_ACCEPTED", "KIND_NO_DEVICE_NOW"}, answers)
        again_kinds = self.send(channel, self.calls(recorded, "SubmitWork")[0])[1][0].outcomes
        self.assertTrue(again_kinds)
        for call in self.calls(recorded, "GetPoolLoad"):
            self.assertEqual(len(self.send(channel, call)[1]), 1)
        for call in self.calls(recorded, "ReportResults"):
            request, answers = self.send(channel, call)
            # The lease was another tracker's: each result is answered by its id, none is lost without a word.
            self.assertEqual(len(answers), 1)
            self.assertEqual([ack.measurement_id for ack in answers[0].acks],
                             [result.measurement_id for result in request.results], answers)
            self.assertTrue(all(ack.disposition for ack in answers[0].acks), answers)
        # Each waits for results, of which there are none.
        with ThreadPoolExecutor() as pool:
            for _, answers in pool.map(lambda call: self.send(channel, call), self.calls(recorded, "PullResults")):
                self.assertEqual(len(answers), 1)

    def old_command_line(self, channel, recorded, tuner):
        write = self.calls(recorded, "Write")[0]
        chunks = [self.message(write["method"], 0).FromString(base64.b64decode(r)) for r in write["requests"]]
        model = b"".join(chunk.data for chunk in chunks)
        stored = self.send(channel, write)[1][0]
        self.assertEqual((stored.complete, stored.committed_size), (True, len(model)))
        request, answers = self.send(channel, self.calls(recorded, "CreateJob")[0])
        job = answers[0]
        self.assertEqual(job.name, "projects/default/jobs/" + request.job_id)
        self.assertEqual(job.target, request.job.target)
        self.assertEqual(job.model.hash, hashlib.sha256(model).digest())
        self.assertEqual(job.budget.max_trials, request.job.budget.max_trials)
        repeated = self.send(channel, self.calls(recorded, "CreateJob")[0])[1][0]
        self.assertEqual(repeated.uid, job.uid, "the same request_id is the same job")
        for method in ("GetJob", "ListJobs", "ListTasks", "ListDevices", "ListModuleVersions"):
            for call in self.calls(recorded, method):
                self.assertEqual(len(self.send(channel, call)[1]), 1, method)
        listed = self.send(channel, self.calls(recorded, "ListJobs")[0])[1][0].jobs
        self.assertEqual([j.uid for j in listed], [job.uid])
        self.good("jobs", "cancel", request.job_id, "--server", tuner.address)


if __name__ == "__main__":
    sys.exit(cli_case.run_cases(sys.modules[__name__]))
