#!/usr/bin/env bash
# Fetches the module of a model for a pipeline, if there is another one than the file at hand, and checks
# who released it, and as what.
#
#   fetch_module.sh MODULE OUTPUT [flags of 'tilewright modules fetch' ...]
#
# MODULE as 'tilewright modules fetch' takes it: NAME, NAME/NUMBER or NAME@ALIAS.
# Environment: TILEWRIGHT_SERVER (HOST:PORT); TILEWRIGHT_IDENTITY and TILEWRIGHT_TOKEN for a server with TLS;
#              TILEWRIGHT_MODULE_KEY (public key of the person who releases modules): what that key did not
#              release under this name is refused.
# Prints changed=true or changed=false, also to $GITHUB_OUTPUT if that is set. Exit codes: 0 in both cases;
# else those of tilewright (3 no such module, 4 no server, 5 not released, or wrongly).
set -euo pipefail

if [ $# -lt 2 ]; then
  echo "usage: fetch_module.sh MODULE OUTPUT [flags ...]" >&2
  exit 2
fi
module=$1 output=$2
shift 2

status=0
tilewright modules fetch "$module" -o "$output" --if-newer --exit-code "$@" || status=$?
case $status in
  0) changed=true ;;
  6) changed=false ;;
  *) exit "$status" ;;
esac
# The file is checked again without the server: what later steps use was released as this module.
if [ -n "${TILEWRIGHT_MODULE_KEY:-}" ]; then
  tilewright modules verify "$output" --module "${module%@*}"
fi
echo "changed=$changed"
if [ -n "${GITHUB_OUTPUT:-}" ]; then
  echo "changed=$changed" >> "$GITHUB_OUTPUT"
fi
