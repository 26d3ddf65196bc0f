"""A small disk of its own for the state of a fleet, which a test fills, makes read-only or slows down.

Full is real: a tmpfs with a size, and a ballast file that is topped up as long as it lasts. The kernel makes
no file system read-only while files are open for writing, and none slow on demand: those two are played by a
preloaded library (host_faults_preload.cc) to the tuner with its builders, and to the tracker and the agent
themselves. The agent's workers see the truth: they are closed in before they could ask.

The mount lies in a mount namespace of this process, so that nothing is left whatever happens: the script
starts itself again under unshare, as an ordinary user with a user namespace.
"""

import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from fleet import BUILD, skip

PRELOAD = "libtilewright_test_host_faults.so"
IN_NAMESPACE = "TILEWRIGHT_TEST_MOUNT_NAMESPACE"
BLOCK = 1 << 20
TOP_UP_S = 0.02
SLOW_SYNC_NS, SLOW_WRITE_NS = 100_000_000, 2_000_000
KINDS = ("full", "read_only", "slow")


def enter_mount_namespace():
    """Starts the script again where it may mount; ends it as skipped where no such place is allowed."""
    if os.environ.get(IN_NAMESPACE):
        return
    flags = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    unshare = ["unshare", *flags, "--propagation", "private"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
        skip("needs a mount namespace: run it as root, or allow user namespaces")
    os.environ[IN_NAMESPACE] = "1"
    os.execvp("unshare", [*unshare, sys.executable, *sys.argv])


def preload_library():
    found = next(BUILD.rglob(PRELOAD), None)
    return found or skip(f"no {PRELOAD} in {BUILD}: build the tests")


class HurtDisk:
    """REQUIRES: enter_mount_namespace()."""

    def __init__(self, megabytes):
        self.path = Path(tempfile.mkdtemp(prefix="tilewright-disk-"))
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "tmpfs", self.path], check=True)
        self.device = os.stat(self.path).st_dev
        self.control_path = Path(tempfile.mkstemp(prefix="tilewright-host-faults-")[1])
        self.control_path.write_bytes(bytes(40))
        with open(self.control_path, "r+b") as file:
            self.control = mmap.mmap(file.fileno(), 40)
        self.preload = preload_library()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "--lazy", self.path], check=False)
        self.path.rmdir()
        self.control.close()
        self.control_path.unlink()

    def env(self, children):
        """For a daemon; `children`: of a daemon whose children see it, too."""
        env = {"LD_PRELOAD": str(self.preload), "TILEWRIGHT_TEST_HOST_FAULTS": str(self.control_path)}
        return {**env, "TILEWRIGHT_TEST_HOST_FAULTS_CHILDREN": "1"} if children else env

    def hurt(self, kind, seconds, during=None):
        """An episode; `during` is called once in its midst."""
        stop = threading.Event()
        ballast = threading.Thread(target=self._fill, args=(stop,)) if kind == "full" else None
        if ballast:
            ballast.start()
        elif kind == "read_only":
            self._set(8, self.device)
        elif kind == "slow":
            self._set(24, SLOW_SYNC_NS)
            self._set(32, SLOW_WRITE_NS)
            self._set(16, self.device)
        try:
            stop.wait(seconds / 2)
            if during:
                during()
            stop.wait(seconds / 2)
        finally:
            stop.set()
            if ballast:
                ballast.join()
                (self.path / "ballast").unlink()
            self.control[8:24] = bytes(16)

    def _set(self, offset, value):
        self.control[offset:offset + 8] = struct.pack("<q", value)

    def _fill(self, stop):
        """Not a byte is left, and what others give back is taken."""
        fd = os.open(self.path / "ballast", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        size = BLOCK
        while not stop.is_set():
            try:
                os.write(fd, bytes(size))
            except OSError:
                if size > 1:
                    size //= 2
                    continue
                stop.wait(TOP_UP_S)
                size = BLOCK
        os.close(fd)
