#!/usr/bin/env python3
"""An agent on a host of its own: a network namespace whose only route leads to the tracker, no shared
folder. The job still completes: agents dial out and fetch everything from the tracker. Once in plain text
(--insecure), once with TLS and tokens and a stranger beside."""
# Measures: a device is used in it, and no time is judged.

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BIN, BUILD, Daemon, Fleet, make_models, run_checks, skip, wait_for  # noqa: E402

NAMESPACE = f"tw-e2e-{os.getpid()}"
HOST, AGENT = "10.231.77.1", "10.231.77.2"


def sh(*command, check=True):
    return subprocess.run(list(map(str, command)), check=check, capture_output=True, text=True)


def make_namespace():
    host_end, agent_end = f"twh{os.getpid() % 10000}", f"twa{os.getpid() % 10000}"
    sh("ip", "netns", "add", NAMESPACE)
    sh("ip", "link", "add", host_end, "type", "veth", "peer", "name", agent_end)
    sh("ip", "link", "set", agent_end, "netns", NAMESPACE)
    sh("ip", "addr", "add", f"{HOST}/30", "dev", host_end)
    sh("ip", "link", "set", host_end, "up")
    sh("ip", "-n", NAMESPACE, "addr", "add", f"{AGENT}/30", "dev", agent_end)
    sh("ip", "-n", NAMESPACE, "link", "set", agent_end, "up")


def start_remote_agent(fleet, private, name, *flags, identity=None):
    """An agent in the namespace. Its own mount namespace hides this test's state folder: nothing is shared but the
    binaries; an identity is carried over."""
    carry = f'cp -a "{identity}" "{private}/identity" && ' if identity else ""
    script = (f'mkdir -p "{private}" && mount -t tmpfs none "{private}" && {carry}mount -t tmpfs none "{fleet.state}" && '
              f'exec "{BIN}/tilewright-agent" --state-dir "{private}/state" --tracker {fleet.tracker_address} '
              f'--device cpu --allow-weak-sandbox {" ".join(flags)}' + (f' --identity "{private}/identity"' if identity else ""))
    agent = Daemon(name, [], fleet.state)
    log = open(agent.log_path, "ab")
    agent.process = subprocess.Popen(["ip", "netns", "exec", NAMESPACE, "unshare", "--mount", "sh", "-c", script],
                                     stdout=log, stderr=log, start_new_session=True)
    fleet.daemons[name] = agent
    return agent


def secure_agent_works_and_a_stranger_beside_it_does_not():
    with Fleet(threads=1) as fleet:
        pki, tokens = fleet.state / "pki", {d: fleet.state / f"{d}-tokens" for d in ("tracker", "tuner")}
        fleet.cli("certs", "init", pki)
        for kind, name, flags in (("tracker", "lab", ("--host", HOST)), ("tuner", "main", ()), ("agent", "bench", ()),
                                  ("client", "ana", ())):
            fleet.cli("certs", "issue", pki, kind, name, *flags)
        for role, name, daemon in (("tuner", "main", "tracker"), ("agent", "bench", "tracker"), ("engineer", "ana", "tuner")):
            fleet.cli("tokens", "create", role, name, "--file", tokens[daemon], "--identity", pki / "issued" / name)

        def secure(daemon, name):
            return ("--identity", pki / "issued" / name, "--tokens", tokens[daemon])
        # Off loopback without --insecure: TLS is what opens the address.
        fleet.start_tracker(listen=f"{HOST}:0", extra=secure("tracker", "lab"))
        fleet.tuner_args = secure("tuner", "main")
        fleet.start_tuner()
        os.environ["TILEWRIGHT_IDENTITY"] = str(pki / "issued" / "ana")
        private = [Path("/tmp") / f"{NAMESPACE}-{name}" for name in ("agent", "stranger")]
        agent = start_remote_agent(fleet, private[0], "agent", identity=pki / "issued" / "bench")
        stranger = start_remote_agent(fleet, private[1], "agent.stranger", "--name", "stranger")
        try:
            model = make_models(fleet.state / "models", "dqn", "--size", 44, "--width", 0.5) / "dqn" / "model.onnx"
            job = fleet.wait_job(fleet.submit(model, 8), 600)
            assert job["state"] == "SUCCEEDED" and job["progress"]["measured"] == 8, job
            devices = fleet.cli_json("devices", "list", *fleet.server())
            assert [d["name"] for d in devices] == ["devices/bench-cpu"], devices
            assert AGENT in devices[0]["address"], devices
            # However soon the job has ended: the stranger, too, has been at the tracker's door by now or will be.
            wait_for("the refusal of the stranger", lambda: "tracker.lost" in stranger.tail(200))
            assert stranger.alive(), stranger.tail()
            devices = fleet.cli_json("devices", "list", *fleet.server())
            assert [d["name"] for d in devices] == ["devices/bench-cpu"], devices
        finally:
            del os.environ["TILEWRIGHT_IDENTITY"]
            agent.stop()
            stranger.stop()
            sh("rm", "-rf", *private, check=False)


def agent_with_a_route_only_to_the_tracker_does_the_work():
    with Fleet(threads=1) as fleet:
        fleet.start_tracker(listen=f"{HOST}:0", extra=("--insecure",))
        fleet.start_tuner()
        private = Path("/tmp") / f"{NAMESPACE}-agent"
        agent = start_remote_agent(fleet, private, "agent")
        try:
            reach = sh("ip", "netns", "exec", NAMESPACE, "ip", "route", check=True).stdout
            assert "default" not in reach, reach
            model = make_models(fleet.state / "models", "dqn", "--size", 44, "--width", 0.5) / "dqn" / "model.onnx"
            name = fleet.submit(model, 20)
            job = fleet.wait_job(name, 600)
            assert job["state"] == "SUCCEEDED" and job["progress"]["measured"] == 20, job
            addresses = {r["device"]["address"] for r in fleet.export(job=name) if r["outcome"] == "OK"}
            assert addresses and all(AGENT in address for address in addresses), addresses
        finally:
            agent.stop()
            sh("rm", "-rf", private, check=False)


if __name__ == "__main__":
    if os.geteuid() != 0:
        skip("network namespaces need root")
    try:
        make_namespace()
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        sh("ip", "netns", "del", NAMESPACE, check=False)
        skip(f"this machine makes no network namespaces: {getattr(error, 'stderr', error)}")
    try:
        run_checks(agent_with_a_route_only_to_the_tracker_does_the_work,
                   secure_agent_works_and_a_stranger_beside_it_does_not)
    finally:
        sh("ip", "netns", "del", NAMESPACE, check=False)
