"""The root of a Debian 12 made by debootstrap, as lanes need it that prove what a machine with nothing else does."""

import shutil
import subprocess
import sys

SUITE = "bookworm"
SOURCES = """deb {mirror} {suite} main
deb {mirror} {suite}-updates main
deb {security} {suite}-security main
"""
# As Debian's installer leaves it; debootstrap makes none.
HOSTS = "127.0.0.1 localhost\n127.0.1.1 fresh\n::1 localhost ip6-localhost ip6-loopback\n"


def add_mirrors(parser):
    parser.add_argument("--mirror", default="http://deb.debian.org/debian")
    parser.add_argument("--security-mirror", default="http://deb.debian.org/debian-security")


def make_debian(root, args, packages=()):
    """The smallest Debian with these packages in the folder `root`; `args` have the mirrors."""
    include = ["--include=" + ",".join(packages)] if packages else []
    done = subprocess.run(["debootstrap", "--variant=minbase", *include, SUITE, str(root), args.mirror], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit("debootstrap: exit code %d\n%s" % (done.returncode, done.stdout[-3000:]))
    (root / "etc/apt/sources.list").write_text(SOURCES.format(mirror=args.mirror, security=args.security_mirror, suite=SUITE))
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    (root / "etc/hosts").write_text(HOSTS)
