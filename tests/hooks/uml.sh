#!/usr/bin/env bash
# Runs the tests of control groups in a kernel of their own: user-mode Linux (`apt-get install user-mode-linux`), which sees
# the files of this machine and needs no privileges of it.
#
#     cargo test --test hooks --no-run && tests/hooks/uml.sh target/debug/deps/hooks-…
set -euo pipefail
tests=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/init" <<END
#!/bin/bash
export PATH=$PATH HOME=/tmp
mount -t proc proc /proc && mount -t sysfs sys /sys
mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo +memory > /sys/fs/cgroup/cgroup.subtree_control
cd $PWD
$tests groups:: --nocapture 2>&1
echo o > /proc/sysrq-trigger
sleep 10
END
chmod +x "$folder/init"
linux.uml root=/dev/root rootfstype=hostfs rootflags=/ rw mem=2G "init=$folder/init" con=null con0=null,fd:1 </dev/null | tee "$folder/log"
grep -q 'test result: ok. 1 passed' "$folder/log"
! grep -q SKIPPED "$folder/log"
