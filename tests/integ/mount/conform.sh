#!/bin/bash
# Every operation of a file system on a mount, with its main error cases and by users without rights.
# shellcheck source-path=SCRIPTDIR/.. source=../lib/mountlib.sh
. "$(dirname "$0")/../../lib/mountlib.sh"

grid_up 1
mount_grid m
expect_ok python3 "$TOP/tests/integ/mount/conform.py" "$T/m"
echo "$output"
# A directory of the grid alone; what is above it cannot be seen.
mkdir "$T/m/sub" && echo inside >"$T/m/sub/file"
mkdir "$T/s" && mounts+=("$T/s")
expect_ok gfsmount -o ro gfs:/sub "$T/s"
assert_equals "$(ls "$T/s")" file "names in a mounted directory"
assert_equals "$(cat "$T/s/file")" inside
expect_fail touch "$T/s/new"
assert_contains "$output" "Read-only"
umount "$T/s"
unmount m
