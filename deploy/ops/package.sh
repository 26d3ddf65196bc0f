#!/usr/bin/env bash
# Makes what is installed: Debian packages of the daemons, the command line, the compiler and the runtime
# library, and a tarball of the agent for machines of any distribution.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: deploy/ops/package.sh [--build DIR] [--out DIR] [--only deb|tarball] [--no-build]

  --build DIR   build tree of a release build (default build/release)
  --out DIR     where the packages go (default build/packages)
  --only WHAT   deb or tarball (default: both)
  --no-build    package the programs that are there

makes  tilewright-client_VERSION_ARCH.deb     tilewright (the command line; no LLVM), protos, the CI script
       tilewright_VERSION_ARCH.deb            tilewright-builder (the compiler); depends on the client
       tilewright-dev_VERSION_ARCH.deb        the runtime library for C, C++ and Python programs; depends on a C library only
       tilewright-images_VERSION_ARCH.deb     decodes images for models with ImageDecoder; of a build with TILEWRIGHT_BUILD_IMAGES
       tilewright-tracker_VERSION_ARCH.deb    with its unit and configuration, as the next two; alerts and dashboard
       tilewright-tuner_VERSION_ARCH.deb
       tilewright-agent_VERSION_ARCH.deb      with tilewright-worker
       tilewright-agent-VERSION-ARCH.tar.gz   agent and worker with their libraries; needs only a C library as new
                                              as that of the machine it was made on
       SHA256SUMS

example: deploy/ops/package.sh --build build/release && dpkg -i build/packages/tilewright-agent_*.deb
without Debian: cmake --install build/release --component dev --prefix PREFIX installs what tilewright-dev has
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
for tool in cmake dpkg-deb dpkg-shlibdeps strip ldd tar gzip sha256sum; do
  command -v "$tool" >/dev/null || { echo "package.sh: expected $tool (apt-get install dpkg-dev binutils)" >&2; exit 69; }
done

programs=(tilewright tilewright-builder tilewright-tracker tilewright-tuner tilewright-agent tilewright-worker)
plugins=(tilewright_device_cuda tilewright_device_opencl tilewright_device_vta tilewright_device_vulkan)
libraries=(libtilewright_runtime.so)
for plugin in "${plugins[@]}"; do libraries+=("lib$plugin.so"); done
images=no
if grep -qx 'TILEWRIGHT_BUILD_IMAGES:BOOL=ON' "$build/CMakeCache.txt"; then
  images=yes
  libraries+=(libtilewright_images.so)
fi
if [ "$compile" = yes ]; then cmake --build "$build" --target "${programs[@]}" tilewright_runtime_shared "${plugins[@]}"; fi
for file in "${programs[@]/#/bin/}" "${libraries[@]/#/lib/}"; do
  [ -e "$build/$file" ] || { echo "package.sh: expected $build/$file; build it first" >&2; exit 66; }
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

# What the worker finds next to itself: devices behind a driver.
install_plugins() {  # FOLDER
  local plugin
  mkdir -p "$1"
  for plugin in "${plugins[@]}"; do
    install -m 0644 "$build/lib/lib$plugin.so" "$1/"
    strip --strip-unneeded "$1/lib$plugin.so"
  done
}

# The pages for users, with the folders that their links name.
install_pages() {  # FOLDER
  mkdir -p "$1/docs/reference" "$1/ops"
  install -m 0644 "$root"/deploy/docs/*.md "$1/docs/"
  install -m 0644 "$root"/deploy/docs/reference/*.md "$1/docs/reference/"
  install -m 0644 "$root"/deploy/ops/*.md "$1/ops/"
}

# The packages that the libraries of a tree's programs are in, with versions.
library_packages() {  # ROOT
  local -a files
  mapfile -t files < <(find "$1/usr" -type f \( -path '*/bin/*' -o -name '*.so*' \) -not -name 'libtilewright_device_*')
  mkdir -p "$work/shlibs/debian"
  printf 'Source: tilewright\n\nPackage: tilewright\nArchitecture: any\n' >"$work/shlibs/debian/control"
  (cd "$work/shlibs" && dpkg-shlibdeps -O --ignore-missing-info "${files[@]}" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

# --- what is in each package: fill_NAME ROOT ---------------------------------------------------------

fill_client() {
  install_program tilewright "$1"
  install -D -m 0755 "$root/deploy/ops/ci/fetch_module.sh" "$1/usr/share/tilewright/ci/fetch_module.sh"
  install -m 0644 "$root/deploy/ops/ci/module.yml" "$1/usr/share/tilewright/ci/"
  # What a program without 'tilewright' speaks to a server: protoc -I /usr/share/tilewright/proto tilewright/v1/module.proto
  local proto
  for proto in "$root"/proto/tilewright/v1/*.proto; do
    install -D -m 0644 "$proto" "$1/usr/share/tilewright/proto/tilewright/v1/$(basename "$proto")"
  done
}

fill_compiler() { install_program tilewright-builder "$1"; }

fill_dev() {
  DESTDIR=$1 cmake --install "$build" --component dev --prefix /usr >/dev/null
  strip --strip-unneeded "$1"/usr/lib/libtilewright_runtime.so.*
}

fill_images() {
  DESTDIR=$1 cmake --install "$build" --component images --prefix /usr >/dev/null
  strip --strip-unneeded "$1"/usr/lib/libtilewright_images.so
}

fill_tracker() {
  install_program tilewright-tracker "$1"
  fill_daemon tracker "$1"
  local file
  for file in alerts.yml dashboard.json prometheus.yml; do
    install -D -m 0644 "$root/deploy/ops/monitoring/$file" "$1/usr/share/tilewright/monitoring/$file"
  done
}

fill_tuner() {
  install_program tilewright-tuner "$1"
  fill_daemon tuner "$1"
}

fill_agent() {
  install_program tilewright-agent "$1"
  install_program tilewright-worker "$1"
  install_plugins "$1/usr/lib/tilewright-agent"
  fill_daemon agent "$1"
}

# Unit, user, configuration, and the scripts that dpkg calls.
fill_daemon() {  # DAEMON ROOT
  local package=tilewright-$1 tree=$2
  install -D -m 0644 "$root/deploy/ops/systemd/$package.service" "$tree/lib/systemd/system/$package.service"
  # Its own user only.
  mkdir -p "$tree/usr/lib/sysusers.d"
  grep -e '^#' -e "^u $package " "$root/deploy/ops/systemd/tilewright.sysusers" >"$tree/usr/lib/sysusers.d/$package.conf"
  chmod 0644 "$tree/usr/lib/sysusers.d/$package.conf"
  install -D -m 0644 "$root/deploy/ops/config/$1.conf" "$tree/etc/tilewright/$1.conf"
  mkdir -p "$tree/DEBIAN"
  echo "/etc/tilewright/$1.conf" >"$tree/DEBIAN/conffiles"
  cat >"$tree/DEBIAN/postinst" <<TEXT
#!/bin/sh
set -e
if [ "\$1" = configure ]; then
  if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers $package.conf || true
  elif ! getent passwd $package >/dev/null; then
    adduser --system --group --no-create-home --home /nonexistent $package || true
  fi
  # Until each daemon had its own user, all ran as tilewright. systemd gives over the state folder.
  for identity in /etc/tilewright/*-$1; do
    if [ -e "\$identity" ] && [ "\$(stat -c %U "\$identity")" = tilewright ]; then
      chown -R $package: "\$identity"
    fi
  done
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
}

# --- packages ----------------------------------------------------------------------------------------

add_documents() {  # PACKAGE ROOT
  local folder=$2/usr/share/doc/$1
  install -D -m 0644 "$root/LICENSE" "$folder/copyright"
  install_pages "$folder"
  printf 'tilewright (%s) stable; urgency=medium\n\n  * See the history of the repository.\n\n -- Tilewright <tilewright@localhost>  %s\n' \
    "$version" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$work/changelog"
  install -m 0644 "$work/changelog" "$folder/changelog.gz"
}

make_deb() {  # PACKAGE SUMMARY FILL [CONTROL-LINE...]; a line 'Depends: X' adds to the libraries' packages
  local package=$1 summary=$2 fill=$3 tree=$work/$1 depends line more=''
  shift 3
  mkdir -p "$tree/DEBIAN"
  "$fill" "$tree"
  add_documents "$package" "$tree"
  depends=$(library_packages "$tree")
  for line in "$@"; do
    case $line in
      Depends:*) depends="${line#Depends: }, $depends" ;;
      *) more+=$line$'\n' ;;
    esac
  done
  cat >"$tree/DEBIAN/control" <<TEXT
Package: $package
Version: $version
Architecture: $arch
Maintainer: Tilewright <tilewright@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f1)
Depends: $depends
${more}Section: devel
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
  # The command line was in the package tilewright before there was a client.
  make_deb tilewright-client "tuner for neural networks: the command line" fill_client "Replaces: tilewright (<= $version)" "Suggests: tilewright"
  make_deb tilewright "compiler and tuner for neural networks: the compiler" fill_compiler "Depends: tilewright-client (= $version)" \
    "Suggests: tilewright-tracker, tilewright-tuner, tilewright-agent"
  make_deb tilewright-dev "runs compiled neural networks from C, C++ and Python" fill_dev "Suggests: pkg-config, cmake, python3-numpy"
  if [ "$images" = yes ]; then make_deb tilewright-images "decodes images for neural networks" fill_images; fi
  make_deb tilewright-tracker "tuner for neural networks: the broker of a fleet" fill_tracker
  make_deb tilewright-tuner "tuner for neural networks: the server of tuning jobs" fill_tuner "Depends: tilewright (= $version)"
  make_deb tilewright-agent "tuner for neural networks: measures on a device" fill_agent
fi
if [ "$only" != deb ]; then make_tarball; fi
(cd "$out" && find . -maxdepth 1 -type f \( -name "*_${version}_$arch.deb" -o -name "*-$version-$arch.tar.gz" \) -printf '%P\n' | sort |
  xargs sha256sum >SHA256SUMS)
