#!/usr/bin/env bash
# Installs the Debian 12 packages that Tilewright needs to build, run and test. Quick and silent when
# all of them are present; otherwise needs root or sudo, and the package manager's network.
#
#   deploy/install_packages.sh          what the build and the quickstart need
#   deploy/install_packages.sh --test   also what only tests need (stock clients, network namespaces,
#                                       the formatter, boards, JavaScript)
#   deploy/install_packages.sh --dev    also the compiler cache and the static analyser
#   deploy/install_packages.sh --fuzz   also what the fuzzers are built with
#   deploy/install_packages.sh --images also what decodes images (-DTILEWRIGHT_BUILD_IMAGES=ON)
#   deploy/install_packages.sh --bench  also the libraries that tests/bench races against
#   deploy/install_packages.sh --rtl    also what simulates and synthesises the accelerator's RTL
#   deploy/install_packages.sh --check  lists what is missing, installs nothing (exit code 1 if any)
set -euo pipefail

BUILD_PACKAGES=(
  g++ cmake ninja-build pkg-config mold git
  libabsl-dev libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libssl-dev
  llvm-19-dev lld-19 liblld-19-dev libzstd-dev zlib1g-dev
  libvulkan-dev spirv-headers
  libxgboost-dev libsqlite3-dev prometheus-cpp-dev libonnx-dev libseccomp-dev
  libgoogle-perftools-dev libcli11-dev libspdlog-dev nlohmann-json3-dev
)
QUICKSTART_PACKAGES=(python3 python3-numpy python3-onnx python3-grpcio python3-protobuf grpc-proto)
TEST_PACKAGES=(
  libgtest-dev libgmock-dev clang-format-19 curl iproute2 openssl sqlite3 python3-xgboost
  pocl-opencl-icd ocl-icd-libopencl1
  mesa-vulkan-drivers spirv-tools vulkan-validationlayers
  g++-aarch64-linux-gnu qemu-user
  nodejs wasi-libc
)
DEV_PACKAGES=(ccache clang-tidy-19 debootstrap)
FUZZ_PACKAGES=(clang-19 libclang-rt-19-dev)
BENCH_PACKAGES=(libclblast-dev libdnnl-dev libopenblas-dev libxnnpack-dev libpthreadpool-dev python3-venv)
IMAGES_PACKAGES=(libmagickcore-6.q16-dev)
RTL_PACKAGES=(clang-19 make verilator yosys)

ATTEMPTS=4

packages=("${BUILD_PACKAGES[@]}" "${QUICKSTART_PACKAGES[@]}")
check_only=0
for argument in "$@"; do
  case "$argument" in
    --test) packages+=("${TEST_PACKAGES[@]}") ;;
    --dev) packages+=("${DEV_PACKAGES[@]}") ;;
    --fuzz) packages+=("${FUZZ_PACKAGES[@]}") ;;
    --images) packages+=("${IMAGES_PACKAGES[@]}") ;;
    --bench) packages+=("${BENCH_PACKAGES[@]}") ;;
    --rtl) packages+=("${RTL_PACKAGES[@]}") ;;
    --check) check_only=1 ;;
    -h | --help)
      sed -n '2,14s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *)
      echo "install_packages.sh: unknown option $argument (try --help)" >&2
      exit 2
      ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_packages.sh: expected Debian 12 with apt-get and dpkg-query" >&2
  echo "on another system install the equivalents of: ${packages[*]}" >&2
  exit 1
fi

installed="$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' 2>/dev/null |
  awk '$2 == "installed" {print $1}')"
missing=()
for package in "${packages[@]}"; do
  grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi
if [[ $check_only -eq 1 ]]; then
  printf '%s\n' "${missing[@]}"
  exit 1
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "install_packages.sh: expected root or sudo, to install: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=900 \
    -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "$@"
}

echo "installing ${#missing[@]} packages: ${missing[*]}"
for ((attempt = 1; attempt <= ATTEMPTS; ++attempt)); do
  # The index of a fresh machine is empty or old; fetching it may fail for a moment.
  if apt_get update && apt_get install -y --no-install-recommends "${missing[@]}"; then
    exit 0
  fi
  echo "install_packages.sh: attempt $attempt of $ATTEMPTS failed" >&2
  if ((attempt < ATTEMPTS)); then
    sleep $((attempt * 5))
  fi
done
echo "install_packages.sh: could not install: ${missing[*]}" >&2
exit 1
