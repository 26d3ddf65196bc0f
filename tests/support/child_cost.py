"""What a command costs: its exit code, wall and processor seconds with its children, and the peak of memory of the largest of them."""

import json
import subprocess
import sys
from collections import namedtuple

Cost = namedtuple("Cost", "code wall_s cpu_s peak_bytes stderr")

# What a process holds counts for the children that it forks: a small one forks the command.
STARTER = """import json, os, sys, time
start = time.monotonic()
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
_, status, usage = os.wait4(child, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024]))"""


def child_cost(command):
    """Runs the command; what it prints is thrown away, its errors are kept."""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", STARTER, *map(str, command)], check=True, capture_output=True, text=True)
    return Cost(*json.loads(done.stdout), done.stderr)
