#!/bin/bash
# Two mounts of a grid: what one does the other sees when the call has returned.
# shellcheck source-path=SCRIPTDIR/.. source=../lib/mountlib.sh
. "$(dirname "$0")/../../lib/mountlib.sh"

grid_up 2
mount_grid a
mount_grid b
expect_ok python3 "$TOP/tests/integ/mount/two.py" "$T/a" "$T/b"
echo "$output"
# What was never closed is there for others, and after the one who wrote it is gone.
python3 -c 'import os, sys, signal
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(fd, b"w" * 100000)
os.fsync(fd)
os.kill(int(sys.argv[2]), signal.SIGKILL)' "$T/a/left" "$(mount_pid a)"
wait_for pid_gone "$(mount_pid a)"
expect_fail ls "$T/a"
umount "$T/a"
assert_equals "$(wc -c <"$T/b/left")" 100000 "bytes of a killed mount"
expect_ok rm "$T/b/left"
# A stopped mount holds the others up for as long as its lease lasts, and is right when it goes on.
mount_grid a
echo old >"$T/b/file"
assert_equals "$(cat "$T/a/file")" old
kill -STOP "$(mount_pid a)"
begin=$SECONDS
echo new >"$T/b/file"
[ $((SECONDS - begin)) -le 5 ] || fail "waited too long for a stopped mount"
kill -CONT "$(mount_pid a)"
assert_equals "$(cat "$T/a/file")" new "content in a mount that was stopped"
unmount a
unmount b
