#!/bin/bash
# Keys stay secret: not in any log at the finest level, not in an argument list, not in what the
# commands print, not in a core dump; and the files that hold them are closed to others.
. "$(dirname "$0")/../lib/testlib.sh"

make_keys >"$T/key.out"
start_echod plain:127.0.0.1:0,tls:127.0.0.1:0 --set daemon.log_level=debug
for address in "${echod_addresses[@]}"; do
	gfs ping -k "$T/alice.key" -c 500 -i 10ms "$address" >>"$T/ping.out" 2>&1 &
	pings+=($!)
done
wait_log gfs-echod "connection open" identity=user:alice
expect_fail gfs ping -k "$T/keys" -c 1 "${echod_addresses[0]}"
echo "$output" >>"$T/ping.out"
gfs key list "$T/keys" >>"$T/key.out"
gfs key list --json "$T/keys" >>"$T/key.out"
pid=$(daemon_pid gfs-echod)
ps -eo args >"$T/ps.out"
# A process that dumps no core closes its environment to its own user, too: only root reads on.
if [ -r "/proc/$pid/environ" ] && [ "$(id -u)" -eq 0 ]; then
	tr '\0' '\n' <"/proc/$pid/environ" >"$T/environ.out"
elif [ -z "$SANITIZE" ] && (: <"/proc/$pid/environ") 2>/dev/null; then
	fail "the environment of the daemon can be read"
else
	: >"$T/environ.out"
fi
grep -q "gfs ping" "$T/ps.out" || fail "ps does not show the pings"

kill "${pings[@]}"
wait "${pings[@]}" 2>/dev/null || true
while read -r secret; do
	[ ${#secret} -eq 64 ] || fail "cannot read the keys of this test"
	for file in gfs-echod.log ping.out key.out ps.out environ.out; do
		if grep -qiF "$secret" "$T/$file"; then fail "a key stands in $file"; fi
		# Nor a part of it that would help.
		if grep -qiF "${secret:0:16}" "$T/$file"; then fail "a part of a key stands in $file"; fi
	done
done < <(sed -n 's/.*key=\([0-9a-f]*\).*/\1/p' "$T/keys")

for file in keys alice.key echod.key admin.key; do
	assert_equals "$(stat -c %a "$T/$file")" 600 "mode of $file"
done

# No core dumps: the limit, and (below) the kernel's own flag. The latter shows as /proc files
# that belong to root although the process does not, so root starts one as somebody else.
if [ -z "$SANITIZE" ]; then
	assert_equals "$(awk '/^Max core file size/ { print $5 }' "/proc/$pid/limits")" 0 "core limit"
fi
stop_daemon gfs-echod
[ -z "$SANITIZE" ] || exit 0

as=()
dir=$T
if [ "$(id -u)" -eq 0 ]; then
	command -v setpriv >/dev/null || exit 0
	as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	dir=$(mktemp -d /tmp/gx-secrets-XXXXXX)
	cp "$BUILD/bin/gfs-echod" "$T/keys" "$dir"
	chown -R 65534:65534 "$dir"
else
	cp "$BUILD/bin/gfs-echod" "$dir"
fi
mkfifo "$dir/ready"
"${as[@]}" "$dir/gfs-echod" --ready-fd 9 --set "echo.keys=$dir/keys" --set echo.listen=127.0.0.1:0 \
	9>"$dir/ready" >"$T/other.log" 2>&1 &
daemon_pids[other]=$!
line=
read -r -t "$PATIENCE_SEC" line <"$dir/ready" || true
owner=$(stat -c %u "/proc/${daemon_pids[other]}/maps")
user=$(awk '/^Uid:/ { print $2 }' "/proc/${daemon_pids[other]}/status")
[ "$dir" = "$T" ] || rm -rf "$dir"
assert_equals "$line" READY "the other daemon"
[ "$user" -ne 0 ] || fail "the other daemon should not run as root"
assert_equals "$owner" 0 "owner of /proc/PID/maps of a process that must not be dumped"
stop_daemon other
