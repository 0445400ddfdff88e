#!/bin/bash
# Ceilings hold: connections beyond the maximum wait and are served when one goes; half-open ones
# push out the oldest, silent ones are closed in time; requests beyond what may be in work wait.
. "$(dirname "$0")/../lib/testlib.sh"

make_keys >/dev/null

# silent NAME ADDRESS COUNT: connections that say nothing, until their descriptor is closed.
# Sets silent_in; what they saw is the last line in $T/NAME.out.
silent()
{
	rm -f "$T/$1.in"
	mkfifo "$T/$1.in"
	"$TOOLS/wirepeer" silent "$2" "$T/alice.key" "$3" <"$T/$1.in" >"$T/$1.out" &
	exec {silent_in}>"$T/$1.in"
	wait_for grep -qx open "$T/$1.out"
}
counter_is() { [ "$(counter "$1" "$2")" = "$3" ]; }

# -- half_open_max: the oldest makes way, and an honest newcomer is not kept out ---------
start_echod plain:127.0.0.1:0,tls:127.0.0.1:0 --set echo.half_open_max=20 \
	--set echo.handshake_timeout=10m --set daemon.log_level=info,rpc.conn=debug
address=${echod_addresses[0]}
silent first "$address" 20
first=$silent_in
wait_for counter_is "$address" half_open 19 # asking takes a half-open place for a moment
silent second "$address" 30
second=$silent_in
exec {first}>&-
wait_for grep -q '^closed' "$T/first.out"
assert_equals "$(tail -n 1 "$T/first.out")" "closed 20" "the oldest"
wait_log gfs-echod "made way for newer connections"
for a in "${echod_addresses[@]}"; do
	expect_ok gfs ping -q -k "$T/alice.key" -c 1 "$a"
done
exec {second}>&-
stop_daemon gfs-echod

# -- handshake_timeout: the silent are closed, the authenticated are not -----------------
log_mark gfs-echod
start_echod plain:127.0.0.1:0,tls:127.0.0.1:0 --set echo.handshake_timeout=300ms \
	--set echo.bulk_listen=plain:127.0.0.1:0,tls:127.0.0.1:0 \
	--set daemon.log_level=info,rpc.conn=debug
for i in 0 1 2 3; do
	silent quiet "${echod_addresses[$i]}" 5
	wait_for grep -q '^closed' "$T/quiet.out"
	assert_equals "$(tail -n 1 "$T/quiet.out")" "closed 5" "silent ones on ${echod_addresses[$i]}"
	exec {silent_in}>&-
done
wait_log gfs-echod "did not authenticate in time"
# One ping each second-long pause: the pause is longer than the time to authenticate.
expect_ok gfs ping -q -k "$T/alice.key" -c 2 -i 1s "${echod_addresses[0]}"
stop_daemon gfs-echod

# -- connections_max: the next one waits in the kernel, and is served when one goes --------
start_echod plain:127.0.0.1:0 --set echo.connections_max=3 --set echo.handshake_timeout=10m
address=${echod_addresses[0]}
silent crowd "$address" 3
expect_fail -s 1 gfs ping -q -k "$T/alice.key" -c 1 -W 500ms "$address"
gfs ping -q -k "$T/alice.key" -c 1 -W "${PATIENCE_SEC}s" "$address" >"$T/waiting.out" 2>&1 \
	{silent_in}>&- & # or it would hold the crowd's descriptor open
waiting=$!
waits() { [ "$(ss -Htn state established "( dport = :$(port_of "$address") )" | wc -l)" -ge 4 ]; }
if command -v ss >/dev/null; then wait_for waits; fi
exec {silent_in}>&-
wait "$waiting" || fail "the waiting ping was not served: $(<"$T/waiting.out")"
expect_ok gfs ping -q -k "$T/alice.key" -c 1 "$address"
stop_daemon gfs-echod

# -- connections that are gone before the daemon looks at them cost nobody else a wait --------
log_mark gfs-echod
start_echod plain:127.0.0.1:0
kill -STOP "$(daemon_pid gfs-echod)"
expect_ok "$TOOLS/wirepeer" reset "${echod_addresses[0]}" "$T/alice.key" 100
kill -CONT "$(daemon_pid gfs-echod)"
expect_ok gfs ping -q -k "$T/alice.key" -c 1 "${echod_addresses[0]}"
assert_lacks "$(<"$T/gfs-echod.log")" "cannot accept"
stop_daemon gfs-echod

# -- the soft limit of descriptors is raised: it is not what bounds a daemon --------------------
if [ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 1000 ]; then
	soft=$(ulimit -Sn)
	ulimit -Sn 64
	start_echod plain:127.0.0.1:0
	ulimit -Sn "$soft"
	silent many "${echod_addresses[0]}" 200
	wait_for counter_is "${echod_addresses[0]}" half_open 200
	exec {silent_in}>&-
	stop_daemon gfs-echod
fi

# -- requests in work: thousands at once on one connection are all answered, in turn ---------
start_echod "plain:127.0.0.1:0,tls:127.0.0.1:0,unix:$T/echod.sock"
for a in "${echod_addresses[@]}"; do
	expect_ok "$TOOLS/wirepeer" flood "$a" "$T/alice.key" 3000 5
	assert_equals "$output" "answered 3000" "flood on $a"
	expect_ok "$TOOLS/wirepeer" flood "$a" "$T/alice.key" 1250 50 69
	assert_equals "$output" "answered 1250" "flood in small pieces on $a"
done
stop_daemon gfs-echod
