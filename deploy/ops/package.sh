#!/usr/bin/env bash
# Makes what is installed: Debian packages of the daemons and the command line, and a tarball of the
# agent for machines of any distribution.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: deploy/ops/package.sh [--build DIR] [--out DIR] [--only deb|tarball] [--no-build]

  --build DIR   build tree of a release build (default build/release)
  --out DIR     where the packages go (default build/packages)
  --only WHAT   deb or tarball (default: both)
  --no-build    package the programs that are there

makes  tilewright_VERSION_ARCH.deb            tilewright, tilewright-builder
       tilewright-tracker_VERSION_ARCH.deb    with its unit and configuration, as the next two
       tilewright-tuner_VERSION_ARCH.deb
       tilewright-agent_VERSION_ARCH.deb      with tilewright-worker
       tilewright-agent-VERSION-ARCH.tar.gz   agent and worker with their libraries; needs only a C library as new
                                              as that of the machine it was made on
       SHA256SUMS

example: deploy/ops/package.sh --build build/release && dpkg -i build/packages/tilewright-agent_*.deb
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$root/build/release out=$root/build/packages only=all compile=yes
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    --no-build) compile=no; shift ;;
    -h|--help) usage; exit 0 ;;
    *) usage >&2; exit 64 ;;
  esac
done
case $only in all|deb|tarball) ;; *) usage >&2; exit 64 ;; esac
for tool in dpkg-deb dpkg-shlibdeps strip ldd tar gzip sha256sum; do
  command -v "$tool" >/dev/null || { echo "package.sh: expected $tool (apt-get install dpkg-dev binutils)" >&2; exit 69; }
done

programs=(tilewright tilewright-builder tilewright-tracker tilewright-tuner tilewright-agent tilewright-worker)
if [ "$compile" = yes ]; then cmake --build "$build" --target "${programs[@]}"; fi
for program in "${programs[@]}"; do
  [ -x "$build/bin/$program" ] || { echo "package.sh: expected $build/bin/$program; build it first" >&2; exit 66; }
done
version=$("$build/bin/tilewright-worker" --version)
arch=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
# The same sources give the same bytes.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}

install_program() {  # NAME ROOT
  install -D -m 0755 "$build/bin/$1" "$2/usr/bin/$1"
  strip --strip-unneeded "$2/usr/bin/$1"
}

# What the worker finds beside itself: devices behind a driver.
install_plugins() {  # FOLDER
  mkdir -p "$1"
  install -m 0644 "$build/lib/libtilewright_device_opencl.so" "$1/"
  strip --strip-unneeded "$1/libtilewright_device_opencl.so"
}

# The pages for users, with the folders that their links name.
install_pages() {  # FOLDER
  mkdir -p "$1/docs/reference" "$1/ops"
  install -m 0644 "$root"/deploy/docs/*.md "$1/docs/"
  install -m 0644 "$root"/deploy/docs/reference/*.md "$1/docs/reference/"
  install -m 0644 "$root"/deploy/ops/*.md "$1/ops/"
}

# The packages that the programs' libraries are in, with versions.
library_packages() {  # ROOT
  mkdir -p "$work/shlibs/debian"
  printf 'Source: tilewright\n\nPackage: tilewright\nArchitecture: any\n' >"$work/shlibs/debian/control"
  (cd "$work/shlibs" && dpkg-shlibdeps -O --ignore-missing-info "$1"/usr/bin/* 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

make_deb() {  # PACKAGE SUMMARY DAEMON|- PROGRAM...
  local package=$1 summary=$2 daemon=$3
  shift 3
  local tree=$work/$package
  for program in "$@"; do install_program "$program" "$tree"; done
  if [ "$package" = tilewright-agent ]; then install_plugins "$tree/usr/lib/tilewright-agent"; fi
  install -D -m 0644 "$root/LICENSE" "$tree/usr/share/doc/$package/copyright"
  install_pages "$tree/usr/share/doc/$package"
  printf 'tilewright (%s) stable; urgency=medium\n\n  * See the history of the repository.\n\n -- Tilewright <tilewright@localhost>  %s\n' \
    "$version" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$work/changelog"
  install -m 0644 "$work/changelog" "$tree/usr/share/doc/$package/changelog.gz"
  mkdir -p "$tree/DEBIAN"
  if [ "$daemon" != - ]; then
    install -D -m 0644 "$root/deploy/ops/systemd/$package.service" "$tree/lib/systemd/system/$package.service"
    # Each brings the user's definition under its own name: no file belongs to two packages.
    install -D -m 0644 "$root/deploy/ops/systemd/tilewright.sysusers" "$tree/usr/lib/sysusers.d/$package.conf"
    install -D -m 0644 "$root/deploy/ops/config/$daemon.conf" "$tree/etc/tilewright/$daemon.conf"
    echo "/etc/tilewright/$daemon.conf" >"$tree/DEBIAN/conffiles"
    cat >"$tree/DEBIAN/postinst" <<TEXT
#!/bin/sh
set -e
if [ "\$1" = configure ]; then
  if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers $package.conf || true
  elif ! getent passwd tilewright >/dev/null; then
    adduser --system --group --no-create-home --home /nonexistent tilewright || true
  fi
  if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    # Restarted on an upgrade, never started by itself: its configuration comes first.
    systemctl try-restart $package.service || true
  fi
fi
TEXT
    cat >"$tree/DEBIAN/prerm" <<TEXT
#!/bin/sh
set -e
if [ "\$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl disable --now $package.service || true
fi
TEXT
    chmod 0755 "$tree/DEBIAN/postinst" "$tree/DEBIAN/prerm"
  fi
  local depends
  depends=$(library_packages "$tree")
  if [ "$package" = tilewright-tuner ]; then depends="tilewright (= $version), $depends"; fi
  cat >"$tree/DEBIAN/control" <<TEXT
Package: $package
Version: $version
Architecture: $arch
Maintainer: Tilewright <tilewright@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f1)
Depends: $depends
Section: devel
Priority: optional
Description: $summary
 Tilewright compiles neural networks and tunes them on a fleet of devices.
TEXT
  (cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | sort | xargs md5sum >DEBIAN/md5sums)
  find "$tree" -type d -exec chmod 0755 {} +
  find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Zgzip --build "$tree" "$out/${package}_${version}_$arch.deb" >/dev/null
  echo "$out/${package}_${version}_$arch.deb"
}

# Of the machine's own: the C library and its loader must fit each other and the kernel.
is_system_library() {
  case $1 in
    ld-linux*|libc.so.*|libm.so.*|libpthread.so.*|libdl.so.*|librt.so.*|libresolv.so.*|linux-vdso*) return 0 ;;
    *) return 1 ;;
  esac
}

make_tarball() {
  local name=tilewright-agent-$version-$arch
  local tree=$work/$name library
  mkdir -p "$tree/bin" "$tree/lib/tilewright-agent"
  for program in tilewright-agent tilewright-worker; do
    install -m 0755 "$build/bin/$program" "$tree/bin/$program"
    strip --strip-unneeded "$tree/bin/$program"
    # Both look in ../lib/tilewright-agent first (their run path), and so do the libraries for each other.
    while read -r library; do
      if is_system_library "$(basename "$library")"; then continue; fi
      install -m 0644 "$library" "$tree/lib/tilewright-agent/"
    done < <(ldd "$build/bin/$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3}')
  done
  install_plugins "$tree/lib/tilewright-agent"
  install -D -m 0644 "$root/deploy/ops/systemd/tilewright-agent.service" "$tree/share/tilewright-agent.service"
  install -m 0644 "$root/deploy/ops/config/agent.conf" "$root/deploy/ops/devices.md" "$root/LICENSE" "$tree/share/"
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" -c "$name" |
    gzip -9n >"$out/$name.tar.gz"
  echo "$out/$name.tar.gz"
}

if [ "$only" != tarball ]; then
  make_deb tilewright "compiler and tuner for neural networks: the command line" - tilewright tilewright-builder
  make_deb tilewright-tracker "tuner for neural networks: the broker of a fleet" tracker tilewright-tracker
  make_deb tilewright-tuner "tuner for neural networks: the server of tuning jobs" tuner tilewright-tuner
  make_deb tilewright-agent "tuner for neural networks: measures on a device" agent tilewright-agent tilewright-worker
fi
if [ "$only" != deb ]; then make_tarball; fi
(cd "$out" && find . -maxdepth 1 -type f \( -name "*_${version}_$arch.deb" -o -name "*-$version-$arch.tar.gz" \) -printf '%P\n' | sort |
  xargs sha256sum >SHA256SUMS)
