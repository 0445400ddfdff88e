#!/bin/bash
# A storage node's disk is really full: the writer gets ENOSPC, nothing acknowledged is lost, other
# files go on, gfs df is right, and when there is room again writing goes on. A node with two disks
# uses the one that has room.
#
# DATA_MIB: size of the disk (tests/soak/data_full.sh: 2 GiB).
inside=${DATA_FULL_INSIDE:-0}
if [ "$inside" = 0 ] && unshare -rm mount -t tmpfs none /mnt 2>/dev/null; then
	DATA_FULL_INSIDE=1 exec unshare -rm bash "$0"
fi
. "$(dirname "$0")/../lib/gridlib.sh"
[ "$inside" = 1 ] || skip "skipped: no small file system can be mounted here"
unmount()
{
	local status=$?
	trap - EXIT ERR
	set +e
	gfs down --dir "$G" --force --timeout 3s >/dev/null 2>&1
	umount -l "$G/fsd1" "$G/second" 2>/dev/null
	(exit $status)
	grid_cleanup
}
trap unmount EXIT

mib=$((1024 * 1024))
disk=${DATA_MIB:-160}
reserved=64 # of fsd.conf
grid_up 0
mkdir -m 700 "$G/fsd1"
mount -t tmpfs -o "size=${disk}m,mode=700" none "$G/fsd1"
grid_up 1
disks=("$G/fsd1")
# df_right: what it says is what the disks have, less what is reserved of each, to 1 MiB (a heartbeat
# ago).
df_right()
{
	gfs df --json | python3 -c 'import json, os, sys
told, reserved = json.load(sys.stdin), int(sys.argv[1]) << 20
disks = [os.statvfs(path) for path in sys.argv[2:]]
size = sum(disk.f_blocks * disk.f_frsize - reserved for disk in disks)
free = sum(max(disk.f_bavail * disk.f_frsize - reserved, 0) for disk in disks)
near = lambda a, b: abs(a - b) <= 1 << 20
sys.exit(not (near(told["capacity_bytes"], size) and near(told["free_bytes"], free) and
              told["used_bytes"] == told["capacity_bytes"] - told["free_bytes"]))' "$reserved" "${disks[@]}"
}
df_free() { gfs df --json | python3 -c 'import json, sys
print(json.load(sys.stdin)["free_bytes"])'; }
wait_for df_right

expect_ok datatool write /kept $((20 * mib)) 1 sync
expect_fail datatool write /big $((2 * disk * mib)) 2
assert_contains "$output" "No space left"
expect_ok datatool read /kept $((20 * mib)) 1 seq
expect_ok gfs mkdir /still
echo small | gfs put - /still/small
assert_equals "$(gfs cat /still/small)" small "a small file beside a full disk"
wait_for df_right
[ "$(df_free)" -le $((16 * mib)) ] || fail "$(df_free) bytes are free on a full disk"
# What was acknowledged by fsync before the disk filled is there after a kill.
grid_kill fsd1
grid_up 1
expect_ok datatool read /kept $((20 * mib)) 1 seq
expect_ok gfs rm /big
emptied() { df_right && [ "$(df_free)" -ge $(((disk - reserved - 40) * mib)) ]; }
wait_for emptied
expect_ok datatool write /after $((10 * mib)) 3 sync
expect_ok datatool read /after $((10 * mib)) 3 seq

# -- a second disk for a node whose first is full: new objects go there, old ones are found
expect_fail datatool write /big $((2 * disk * mib)) 4
assert_contains "$output" "No space left"
mkdir -m 700 "$G/second"
mount -t tmpfs -o "size=${disk}m,mode=700" none "$G/second"
mkdir -m 700 "$G/second/spool" "$G/fsd1.conf.d"
printf '[fsd]\nspools = %s,%s\nmake_spools = yes\n' "$G/fsd1/spool" "$G/second/spool" \
	>"$G/fsd1.conf.d/second.conf"
disks+=("$G/second")
grid_kill fsd1
grid_up 1
wait_for df_right
expect_ok datatool write /second $((30 * mib)) 5 sync
[ "$(find "$G/second/spool/objects" -type f -size +29M | wc -l)" -eq 1 ] ||
	fail "the new object is not on the second disk"
for round in before after; do
	expect_ok datatool read /kept $((20 * mib)) 1 seq
	expect_ok datatool read /after $((10 * mib)) 3 seq
	expect_ok datatool read /second $((30 * mib)) 5 seq
	[ $round = after ] || { grid_kill fsd1 && grid_up 1; }
done
wait_for df_right
