#!/bin/bash
# How a mount is made: by gfs up, by mount(8), by a plain user; and what is said if it cannot be.
# shellcheck source-path=SCRIPTDIR/.. source=../lib/mountlib.sh
. "$(dirname "$0")/../../lib/mountlib.sh"

one_line() { assert_equals "$(wc -l <<<"$output")" 1 "lines of: $output"; }

# -- what is wrong is told in one line
mkdir "$T/m"
mounts+=("$T/m")
expect_fail -s 1 gfsmount "$T/m"
one_line
assert_contains "$output" "gfs up"
expect_fail -s 2 gfsmount
one_line
expect_fail -s 2 gfsmount -o no_such_option "$T/m"
one_line
assert_contains "$output" no_such_option
expect_fail -s 2 gfsmount -o cache=much "$T/m"
one_line
expect_fail -s 2 gfsmount -o hard,soft "$T/m"
expect_fail -s 2 gfsmount a b c
grid_up 1
expect_fail -s 1 gfsmount "$T/none"
one_line
assert_contains "$output" "make the directory"
expect_fail -s 1 gfsmount gfs:/none "$T/m"
one_line
echo x >"$T/file"
expect_fail -s 1 gfsmount "$T/file"
one_line
expect_ok gfsmount --help
assert_contains "$output" read_ahead
expect_ok gfsmount --version

# -- by gfs up, and down with the grid
expect_ok gfs up --dir "$G" --mount "$T/m"
assert_contains "$output" "$T/m"
mount_is "$T/m" || fail "not mounted"
echo text >"$T/m/file"
expect_ok gfs up --dir "$G" --mount "$T/m"
assert_contains "$output" "was running"
expect_fail -s 1 gfs up --dir "$G" --mount "$T/other"
one_line
assert_contains "$output" "$T/m already"
assert_equals "$(gfs cat /file)" text
expect_ok gfs down --dir "$G"
assert_contains "$output" "mount (process"
! mount_is "$T/m" || fail "still mounted"
grid_up 1

# -- by mount(8), as from fstab
if command -v mount.fuse3 >/dev/null; then
	# mount(8) calls this helper, with a PATH of its own that does not lead here.
	expect_ok mount.fuse3 gfs:/ "$T/m" -t fuse.gfsmount \
		-o "rw,allow_other,_netdev,nofail,x-systemd.automount,config=$GFS_CONFIG"
	assert_equals "$(cat "$T/m/file")" text
	assert_equals "$(findmnt -no FSTYPE,SOURCE "$T/m" | xargs)" "fuse.gfsmount gfs:/"
	expect_ok umount "$T/m"
fi

# -- by a plain user, with a key of his own and without rights
fusermount=$(command -v fusermount3) || exit 0
[ -u "$fusermount" ] || exit 0
# Where others can go: the test's own directory is closed to them.
U=$(mktemp -d /tmp/gx-user-XXXXXX)
user_cleanup()
{
	local status=$?
	rm -rf "$U"
	(exit $status)
	mount_cleanup
}
trap user_cleanup EXIT
mkdir "$U/m"
expect_ok gfs key new user:nobody -o "$U/nobody.key"
gfs key add "$G/keys" "$U/nobody.key"
echo "user nobody 777 777" >>"$G/users"
kill -HUP "$(grid_pid metad)"
address=$(grep -v unix: "$G/run/metad.addr")
sed "s|^key_file.*|key_file = $U/nobody.key|; s|^metad = .*|metad = $address|" "$GFS_CONFIG" >"$U/gfs.conf"
cat >"$U/try" <<'TRY'
set -eu
cd "$HOME"
until gfs ls / >/dev/null 2>&1; do sleep 0.05; done
gfsmount m
trap 'fusermount3 -u m' EXIT
echo mine >m/open/f
test "$(cat m/open/f)" = mine
test "$(stat -c %u m/open/f)" = "$(id -u)"
if touch m/no 2>error; then exit 1; fi
grep -q 'Permission denied' error
TRY
chown -R nobody:nogroup "$U"
chmod 755 "$U"
gfs mkdir -m 777 /open
mknod "$T/fuse" c 10 229
chmod 666 "$T/fuse"
# In many machines the device is open to all; here that is so for one moment and one process.
expect_ok unshare -m bash -c "mount --bind '$T/fuse' /dev/fuse
	setpriv --reuid nobody --regid nogroup --clear-groups env HOME='$U' GFS_CONFIG='$U/gfs.conf' timeout 30 bash '$U/try'"
