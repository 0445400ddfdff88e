#!/bin/bash
# A disk that is really full: metad refuses changes, goes on reading, goes on changing when there is
# room, and loses nothing (rule N7).
inside=${META_FULL_INSIDE:-0}
if [ "$inside" = 0 ] && unshare -rm mount -t tmpfs none /mnt 2>/dev/null; then
	META_FULL_INSIDE=1 exec unshare -rm bash "$0"
fi
. "$(dirname "$0")/../lib/testlib.sh"
[ "$inside" = 1 ] || skip "skipped: no small file system can be mounted here"

# The directory cannot be removed while something is mounted on it.
unmount()
{
	local status=$?
	trap - EXIT ERR
	set +e
	umount -l "$T/md" 2>/dev/null
	(exit $status)
	testlib_cleanup
}
trap unmount EXIT

gfs key new user:root --admin -o "$T/root.key"
gfs key add "$T/keys" "$T/root.key"
mkdir "$T/md" "$T/journals"
mount -t tmpfs -o size=24m,mode=700 none "$T/md"
printf '[gfs]\nmetad = unix:%s\nkey_file = %s\n' "$T/metad.sock" "$T/root.key" >"$T/gfs.conf"
export GFS_CONFIG=$T/gfs.conf

options=(--set "metad.listen=unix:$T/metad.sock" --set "metad.keys=$T/keys"
	--set "metad.dir=$T/md" --set metad.segment=256KiB)
start_metad() { start_daemon -n metad gfs-metad "${options[@]}"; }
fill() { dd if=/dev/zero of="$T/md/filler" bs=64k status=none 2>/dev/null || true; }
# results PATTERN: how many operations ended so.
results() { cat "$T"/journals/journal.* | grep -c " = $1\$" || true; }
more_than() { [ "$(results "$1")" -gt "$2" ]; }

start_metad
"$TOOLS/mdload" load "$T/gfs.conf" "$T/journals" 2 $RANDOM >"$T/load.log" 2>&1 &
load_pid=$!
wait_for test -s "$T/journals/journal.1"
wait_for more_than 0 200
echo before | gfs put - /before

# -- full: no change is made, everything can be read
fill
wait_for more_than -28 20
expect_fail gfs mkdir /refused
assert_contains "$output" "no room in metad's log"
expect_ok gfs cat /before
assert_equals "$output" before "a file on a full disk"
expect_ok gfs ls /

# -- room: the same clients go on
rm "$T/md/filler"
done_before=$(results 0)
wait_for more_than 0 $((done_before + 200))
wait_for gfs mkdir /accepted

kill -TERM $load_pid
status=0
wait $load_pid || status=$?
cat "$T/load.log"
assert_equals $status 0 "status of the load"
assert_equals "$(grep -c ' 0 unknown$' "$T/load.log")" 2 "clients that always knew"
expect_ok "$TOOLS/mdload" verify "$T/gfs.conf" "$T"/journals/journal.*
echo "$output"

# -- LevelDB cannot be opened without some room: metad says so, and starts when there is
kill_daemon metad
fill
expect_fail -s 1 timeout "$PATIENCE_SEC" gfs-metad "${options[@]}"
assert_contains "$output" "No space left on device"
rm "$T/md/filler"
start_metad
expect_ok "$TOOLS/mdload" verify "$T/gfs.conf" "$T"/journals/journal.*
expect_ok gfs mkdir /again
stop_daemon metad
cp -r "$T/md" "$T/copy"
expect_ok "$TOOLS/mdcheck" "$T/copy"
assert_contains "$output" "orphans 0 sessions 0 problems 0"
