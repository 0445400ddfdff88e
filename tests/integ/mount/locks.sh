#!/bin/bash
# Locks on two mounts of a grid: they exclude each other, and who waits gets his turn, or a signal.
# shellcheck source-path=SCRIPTDIR/.. source=../lib/mountlib.sh
. "$(dirname "$0")/../../lib/mountlib.sh"

grid_up 2
mount_grid a
mount_grid b
expect_ok python3 "$TOP/tests/integ/mount/locks.py" "$T/a" "$T/b"
echo "$output"
unmount a
unmount b
