# shellcheck shell=bash
# Mounts of a grid for a test: gridlib.sh and gfsmount. Source this instead.
# shellcheck source=../lib/gridlib.sh
. "$(dirname "${BASH_SOURCE[0]}")/gridlib.sh"

[ "$(id -u)" = 0 ] || skip "skipped: mounting for other users needs root"
(: >/dev/fuse) 2>/dev/null || skip "skipped: no /dev/fuse here"
[ -c /dev/fuse ] || skip "skipped: /dev/fuse is no device"

mounts=()
mount_cleanup()
{
	local status=$? place
	set +e
	for place in "${mounts[@]}"; do
		mount_is "$place" && umount -l "$place"
	done
	(exit $status)
	grid_cleanup
}
trap mount_cleanup EXIT

# mount_is DIR: without touching it.
mount_is() { grep -q " $1 fuse.gfsmount " /proc/mounts; }
# mount_grid NAME [OPTIONS]: $T/NAME, for all users.
mount_grid()
{
	mkdir -p "$T/$1"
	mounts+=("$T/$1")
	expect_ok gfsmount -o "allow_other,dev,suid,pid_file=$T/$1.pid${2:+,$2}" "$T/$1"
	chmod 755 "$T"
}
mount_pid() { cat "$T/$1.pid"; }
# unmount NAME: and its process has ended when this returns.
unmount()
{
	local pid
	pid=$(mount_pid "$1")
	umount "$T/$1"
	wait_for pid_gone "$pid"
}
