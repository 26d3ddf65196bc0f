#!/bin/bash
# What tests/long/units.py runs inside its machine, as root. One line for each check.
# The machine is emulated: everything takes twenty times as long.

here=/opt/proof
server=127.0.0.1:7000

check() {  # check WHAT COMMAND...
  local what=$1
  shift
  if "$@" >/tmp/check.out 2>&1; then
    echo "ok - $what"
  else
    echo "not ok - $what"
    tail -n 20 /tmp/check.out
  fi
}
within() {  # within SECONDS COMMAND...: until it succeeds
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 1
  done
}
agent_group() { echo "/sys/fs/cgroup$(systemctl show -P ControlGroup tilewright-agent)"; }
main_pid() { systemctl show -P MainPID "tilewright-$1"; }
devices() { tilewright devices get "$(device)" --server $server "$@"; }
device() { tilewright devices list --server $server | awk '/-cpu/ { print $1 }'; }
ready() { tilewright devices list --server $server 2>&1 | tee /tmp/devices.out | grep -qE 'online +good +idle +enabled'; }
# A field of the device's attributes holds the text, or lacks it.
says() { devices -o json | tee /tmp/device.json | grep -q "$1"; }
says_not() { ! says "$1"; }
tune() {
  tilewright tune $here/models/dqn/model.onnx --target cpu,arch=x86_64,cpu=x86-64,threads=1 --trials 2 --seed 1 \
    --server $server -o /tmp/tuned.tw
}
computes() {
  tilewright run /tmp/tuned.tw --input input=$here/models/dqn/test_data_set_0/input_0.pb \
    --expect output=$here/models/dqn/expected/output_0.pb --rtol 1e-4 --atol 1e-4
}
own_user() { [ "$(stat -c %U "/proc/$(main_pid "$1")")" = "tilewright-$1" ]; }
private_state() { [ "$(stat -c %a:%U "/var/lib/tilewright-$1")" = "700:tilewright-$1" ]; }
comes_back() {  # after kill -9
  local before
  before=$(main_pid "$1")
  kill -9 "$before"
  within 120 test "$(main_pid "$1")" != "$before" && within 120 systemctl is-active --quiet "tilewright-$1"
}
worker_group_bounds() { cat "$(agent_group)"/worker-*/memory.max | grep -qE '^[0-9]+$'; }
agent_in_its_part() { grep -q "^$(main_pid agent)$" "$(agent_group)/agent/cgroup.procs"; }
one_worker_group() { [ "$(ls -d "$(agent_group)"/worker-* | wc -l)" = 1 ]; }
in_group() {  # in_group PROGRAM...: as the agent's user, in a group that is delegated as its unit's is
  systemd-run --quiet --wait --pipe --collect -p User=tilewright-agent -p Delegate="memory pids" -p PrivateTmp=yes \
    --setenv=LD_LIBRARY_PATH=$here/lib ${TILEWRIGHT_ATTACKS:+--setenv=TILEWRIGHT_ATTACKS=$TILEWRIGHT_ATTACKS} "$@"
}

echo "kernel $(uname -r), $(systemctl --version | head -n 1)"
for daemon in tracker tuner agent; do
  check "$daemon starts with the configuration as it is shipped" systemctl start "tilewright-$daemon"
  check "$daemon has a user of its own" own_user $daemon
  check "$daemon's state is its own" private_state $daemon
done
check "the device is ready" within 300 ready
cat /tmp/devices.out
check "the sandbox lacks nothing" says_not sandbox_missing
check "the sandbox has a control group" says "control group"
grep sandbox /tmp/device.json
check "the agent is in its part of the group" agent_in_its_part
check "the worker's group bounds memory" worker_group_bounds
check "a job tunes" tune
tail -n 5 /tmp/check.out
check "its module computes what NumPy says" computes
check "the agent takes over a changed configuration" systemctl reload tilewright-agent
for daemon in agent tracker tuner; do check "$daemon comes back after kill -9" comes_back $daemon; done
check "the device is ready again" within 300 ready
check "the groups of dead workers are gone" one_worker_group
check "a second job tunes" tune
check "rules of control groups" in_group $here/bin/control_group_test
check "attacks end typed, and a group bounds all processes" in_group $here/bin/attack_corpus_test --gtest_filter=*AttackCorpus.*
grep -E '^attack: .*FAILED|\[SKIP\]|^\[  (PASSED|FAILED)' /tmp/check.out
for daemon in agent tuner tracker; do check "$daemon stops in order" systemctl stop "tilewright-$daemon"; done
check "no unit failed" test -z "$(systemctl --failed --no-legend --plain | grep tilewright)"
check "nothing of ours in the log of errors" test -z "$(journalctl -p err -b --no-pager -q -t tilewright-tracker -t tilewright-tuner -t tilewright-agent)"
echo "proof complete"
