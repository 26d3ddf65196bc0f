#!/usr/bin/env bash
# Races generated kernels against the vendor's libraries where an NVIDIA GPU and PyTorch are, and writes
# tests/bench/results/gpu.json; elsewhere it says [SKIP]. Flags are those of gpu_race.py.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec python3 "$here/gpu_race.py" -o "$here/results/gpu.json" "$@"
