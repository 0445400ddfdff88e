#!/bin/bash
# Random operations on one file through a mount (in the long form: through two at once, too), against a
# model of its bytes.
# shellcheck source-path=SCRIPTDIR/.. source=../lib/mountlib.sh
. "$(dirname "$0")/../../lib/mountlib.sh"

steps=1500
[ "${GX_SOAK:-}" != 1 ] || steps=100000
grid_up 1
mount_grid a
mount_grid b
rounds=("$T/a")
# With two a read can miss what was written (docs/ARCHITECTURE.md, what is known to be open).
[ "${GX_SOAK:-}" != 1 ] || rounds+=("$T/a $T/b")
for mounts_used in "${rounds[@]}"; do
	read -r -a places <<<"$mounts_used"
	expect_ok python3 "$TOP/tests/integ/mount/fsx.py" "$steps" "${places[@]}"
	echo "$output"
done
unmount a
unmount b
