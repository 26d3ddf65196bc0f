#!/usr/bin/env bash
# Fetches what the device part of Tilewright links on a board, from Debian's own packages for its
# architecture, into a folder of its own. Installs nothing, needs no root.
#
#   deploy/ops/boards/sysroot.sh FOLDER            for arm64
#   deploy/ops/boards/sysroot.sh FOLDER armhf      for another architecture of Debian
#   deploy/ops/boards/sysroot.sh FOLDER arm64 libopenblas-dev ...    more packages, without what they need
#
# Six packages, 5 MB to download. The C and C++ libraries come with the cross compiler. Exit code 75 if
# the package mirror does not answer.
set -euo pipefail

PACKAGES=(libabsl-dev libprotobuf-dev libseccomp-dev libvulkan-dev nlohmann-json3-dev spirv-headers)
ATTEMPTS=4

if [[ $# -lt 1 || "$1" == -* ]]; then
  sed -n '2,10s/^# \{0,1\}//p' "$0"
  exit $(( $# == 1 ? 0 : 2 ))
fi
arch="${2:-arm64}"
PACKAGES+=("${@:3}")
mkdir -p "$1"
root="$(cd "$1" && pwd)"
if [[ -e "$root/.complete" && "$(cat "$root/.complete")" == "$arch ${PACKAGES[*]}" ]]; then
  exit 0
fi

# apt with folders of its own: the machine's package lists and architectures stay as they are.
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/debs"
: >"$work/state/status"
cat >"$work/apt.conf" <<CONF
APT::Architecture "$arch";
APT::Architectures { "$arch"; };
APT::Sandbox::User "";
Dir::State "$work/state";
Dir::State::status "$work/state/status";
Dir::Cache "$work/cache";
CONF
export APT_CONFIG="$work/apt.conf"
fetch() {
  apt-get -q update >"$work/log" 2>&1 && (cd "$work/debs" && apt-get -q download "${PACKAGES[@]}" >>"$work/log" 2>&1)
}
for ((attempt = 1; ; ++attempt)); do
  if fetch; then break; fi
  if ((attempt == ATTEMPTS)); then
    tail -5 "$work/log" >&2
    echo "sysroot.sh: apt-get cannot fetch ${PACKAGES[*]} for $arch" >&2
    exit 75  # it may work later
  fi
  sleep 2
done
for deb in "$work"/debs/*.deb; do
  dpkg-deb -x "$deb" "$root"
done
# Archives in place of Abseil's shared libraries, which are in another package: the worker brings all
# that it uses, but for the C library.
for targets in "$root"/usr/lib/*/cmake/absl/abslTargets-none.cmake; do
  sed -i 's/\.so\.[0-9.]*"/.a"/; /IMPORTED_SONAME/d' "$targets"
done
echo "$arch ${PACKAGES[*]}" >"$root/.complete"
