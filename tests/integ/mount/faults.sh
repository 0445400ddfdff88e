#!/bin/bash
# A mount whose servers are away, hung or have damaged bytes, and one that is told to end.
# shellcheck source-path=SCRIPTDIR/.. source=../lib/mountlib.sh
. "$(dirname "$0")/../../lib/mountlib.sh"

grid_up 2
mount_grid m meta_timeout=3s,data_timeout=3s
M=$T/m
head -c 3000000 /dev/urandom >"$T/data"

# -- a flipped byte is never seen: not in a partial read, not through a mapping
cp "$T/data" "$M/one"
node=$(where /one node)
object=$(object_of "$node")
wait_for cmp -s "$object" "$T/data"
unmount m # so that nothing of it is in the kernel
flip "$object" 1500000
mount_grid m meta_timeout=3s,data_timeout=3s
cmp -n 1400000 "$M/one" "$T/data"
expect_fail dd if="$M/one" of=/dev/null bs=1 skip=1500000 count=1
assert_contains "$output" "Input/output error"
expect_fail cat "$M/one"
python3 -c 'import mmap, os, sys
pid = os.fork()
if pid == 0:
    fd = os.open(sys.argv[1], os.O_RDONLY)
    mapped = mmap.mmap(fd, 3000000, prot=mmap.PROT_READ)
    mapped[1500000]
    os._exit(0)
assert os.WIFSIGNALED(os.waitpid(pid, 0)[1]), "a damaged page was mapped"' "$M/one"
flip "$object" 1500000

# -- with a second copy the right bytes come from there; and a hung node costs a second
expect_ok gfs rep --copies 2 --wait /one
flip "$object" 1500000
unmount m
mount_grid m meta_timeout=3s,data_timeout=3s
cmp "$M/one" "$T/data"
unmount m
mount_grid m meta_timeout=3s,data_timeout=3s
grid_stop "$node"
begin=$SECONDS
cmp "$M/one" "$T/data"
[ $((SECONDS - begin)) -le 4 ] || fail "a hung node with another copy held a read up"
grid_continue

# -- the only node of a file is away: an error in time, and it comes back
cp "$T/data" "$M/alone"
node=$(where /alone node)
sync
echo 3 >/proc/sys/vm/drop_caches 2>/dev/null || true
unmount m
mount_grid m meta_timeout=3s,data_timeout=3s
grid_kill "$node"
begin=$SECONDS
expect_fail cat "$M/alone"
assert_contains "$output" "No route to host"
[ $((SECONDS - begin)) -le 20 ] || fail "waited longer than data_timeout"
grid_up 2
cmp "$M/alone" "$T/data"

# -- metad is away: an open file can be closed, errors come in time, umount does not hang
exec 9<"$M/alone"
grid_kill metad
exec 9<&-
expect_fail ls "$M/nothing"
assert_contains "$output" "timed out"
pid=$(mount_pid m)
begin=$SECONDS
umount "$M"
[ $((SECONDS - begin)) -le 2 ] || fail "umount hung"
grid_up 2
wait_for pid_gone "$pid"

# -- SIGTERM: unmounts, also while a file is open, and what was written to it is kept
mount_grid m
python3 -c 'import os, sys, signal, time
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(fd, b"k" * 5000000)
os.kill(int(sys.argv[2]), signal.SIGTERM)
while os.path.exists("/proc/%s/exe" % sys.argv[2]):
    time.sleep(0.02)' "$M/kept" "$(mount_pid m)"
! mount_is "$M" || fail "still mounted after SIGTERM"
assert_equals "$(gfs stat --json /kept | python3 -c 'import json, sys; s = json.load(sys.stdin); print((s[0] if isinstance(s, list) else s)["size"])')" 5000000 "bytes of an open file"
