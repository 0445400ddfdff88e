#!/bin/bash
# SIGTERM answers what is in flight, removes what the daemon made and exits 0; a second one exits
# at once; SIGHUP reloads or keeps the old; a crash does not block the next start.
. "$(dirname "$0")/../lib/testlib.sh"

make_keys >/dev/null
cat >"$T/echod.conf" <<CONF
[daemon]
pid_file = echod.pid
log_level = info
CONF
start() { start_echod "plain:127.0.0.1:0,tls:127.0.0.1:0,unix:$T/echod.sock" -c "$T/echod.conf"; }

# tally ADDRESS COUNT DELAY_MS: calls in flight in the background, its pid in $tally. Returns
# when all are sent; what it prints is in $T/tally.out.
tally()
{
	rm -f "$T/tally.fifo"
	mkfifo "$T/tally.fifo"
	"$TOOLS/wirepeer" tally "$1" "$T/alice.key" "$2" "$3" >"$T/tally.fifo" &
	tally=$!
	exec 7<"$T/tally.fifo"
	local line=
	read -r -t "$PATIENCE_SEC" line <&7 || true
	assert_equals "$line" sent "the calls"
}
tally_result()
{
	wait "$tally"
	read -r -t "$PATIENCE_SEC" tally_result <&7 || tally_result=nothing
	exec 7<&-
}
gone() { [ ! -e "$1" ] || fail "$1 is still there"; }

# -- in flight ---------------------------------------------------------------------
for i in 0 1 2; do
	start
	assert_equals "$(<"$T/echod.pid")" "$(daemon_pid gfs-echod)" "pid file"
	tally "${echod_addresses[$i]}" 100 700
	stop_daemon gfs-echod
	tally_result
	assert_equals "$tally_result" "answered 100" "calls in flight on ${echod_addresses[$i]}"
	for file in echod.pid echod.sock echod.addr; do gone "$T/$file"; done
	wait_log gfs-echod notice stopping
	wait_log gfs-echod notice stopped
done

# A call that takes longer than the daemon waits (5 s) does not keep it: it ends by itself.
start
tally "${echod_addresses[0]}" 1 10000
begin=$SECONDS
stop_daemon gfs-echod
[ $((SECONDS - begin)) -lt 9 ] || fail "a slow call held the shutdown for $((SECONDS - begin)) s"
tally_result
assert_equals "$tally_result" "answered 0" "the slow call"

# -- twice: at once, with a status that is not 0, and still without a pid file ---------
start
tally "${echod_addresses[0]}" 1 10000
begin=$SECONDS
log_mark gfs-echod # the lives before this one have said it, too
kill -TERM "$(daemon_pid gfs-echod)"
wait_log gfs-echod "stopping"
kill -TERM "$(daemon_pid gfs-echod)"
reap_daemon gfs-echod
assert_equals "$daemon_status" 1 "status after a second signal"
[ $((SECONDS - begin)) -lt 4 ] || fail "the second signal took $((SECONDS - begin)) s"
wait_log gfs-echod "second signal"
gone "$T/echod.pid"
tally_result
assert_equals "$tally_result" "answered 0" "the call cut off"

# -- SIGINT is the same as SIGTERM ----------------------------------------------------
start
kill -INT "$(daemon_pid gfs-echod)"
reap_daemon gfs-echod
assert_equals "$daemon_status" 0 "status after SIGINT"

# -- SIGHUP ------------------------------------------------------------------------
log_mark gfs-echod
start
expect_ok gfs ping -q -k "$T/alice.key" -c 1 "${echod_addresses[0]}"
if has_line "$T/gfs-echod.log" " debug "; then fail "debug lines at level info"; fi
sed -i 's/^log_level.*/log_level = debug/' "$T/echod.conf"
kill -HUP "$(daemon_pid gfs-echod)"
wait_log gfs-echod "configuration reloaded"
expect_ok gfs ping -q -k "$T/alice.key" -c 1 "${echod_addresses[0]}"
wait_log gfs-echod debug "connection open" identity=user:alice

# A mistake: all of the old configuration stays, debug lines included.
log_mark gfs-echod
printf '[daemon]\nlog_levle = info\n' >"$T/echod.conf"
kill -HUP "$(daemon_pid gfs-echod)"
wait_log gfs-echod err "echod.conf:2" log_level
wait_log gfs-echod err "keeping the old values"
log_mark gfs-echod
expect_ok gfs ping -q -k "$T/alice.key" -c 1 "${echod_addresses[0]}"
wait_log gfs-echod debug "connection open"

# What cannot change while running is named.
log_mark gfs-echod
printf '[daemon]\npid_file = echod.pid\nlog_level = debug\n[echo]\nconnections_max = 7\n' \
	>"$T/echod.conf"
kill -HUP "$(daemon_pid gfs-echod)"
wait_log gfs-echod warning connections_max restart

# -- twice started: the second one says who is there --------------------------------
expect_fail -s 1 timeout "$PATIENCE_SEC" gfs-echod -c "$T/echod.conf" --set "echo.keys=$T/keys" \
	--set echo.listen=127.0.0.1:0
assert_contains "$output" "already running as process $(daemon_pid gfs-echod)"
# Without the pid file's lock, the socket is what they would share.
expect_fail -s 1 timeout "$PATIENCE_SEC" gfs-echod --set "echo.keys=$T/keys" \
	--set "echo.listen=unix:$T/echod.sock"
assert_contains "$output" "Address already in use"
expect_ok gfs ping -q -k "$T/alice.key" -c 1 "unix:$T/echod.sock"

# -- a crash leaves its files, and the next start takes them over ----------------------
kill_daemon gfs-echod
[[ -S $T/echod.sock && -e $T/echod.pid ]] || fail "a killed daemon cannot have cleaned up"
start
expect_ok gfs ping -q -k "$T/alice.key" -c 1 "unix:$T/echod.sock"
assert_equals "$(<"$T/echod.pid")" "$(daemon_pid gfs-echod)" "pid file after a crash"
stop_daemon gfs-echod
for file in echod.pid echod.sock echod.addr; do gone "$T/$file"; done

# -- in the background: ready when the command returns ---------------------------------
expect_ok gfs-echod -b --set "daemon.pid_file=$T/back.pid" --set "daemon.log_file=$T/back.log" \
	--set "echo.keys=$T/keys" --set "echo.listen=unix:$T/back.sock"
pid=$(<"$T/back.pid")
daemon_pids[back]=$pid # for the cleanup, should the rest fail
expect_ok gfs ping -q -k "$T/alice.key" -c 1 "unix:$T/back.sock"
kill -TERM "$pid"
ended() { ! kill -0 "$pid"; }
wait_for ended
unset "daemon_pids[back]"
gone "$T/back.pid"
gone "$T/back.sock"
expect_fail gfs-echod -b --set "daemon.log_file=$T/back.log" --set "echo.keys=$T/keys" \
	--set "echo.listen=unix:$T/no/such/directory/sock"
