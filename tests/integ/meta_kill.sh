#!/bin/bash
# metad under load is killed and restarted again and again, stopped for a while, and loses a client:
# nothing acknowledged is lost, nothing is done twice, and what a dead client leaves is cleared away.
# META_KILL_SEED repeats the moments, META_KILLS says how many.
. "$(dirname "$0")/../lib/testlib.sh"

session_timeout=5s
kills=${META_KILLS:-15}
span_ms=500 # a life is a random part of this, and a tenth
if [ "${GX_SOAK:-}" = 1 ]; then
	kills=${META_KILLS:-200}
	span_ms=2000
fi
[ -z "$SANITIZE" ] || span_ms=$((span_ms * 4))
seed=${META_KILL_SEED:-$RANDOM$RANDOM}
echo "META_KILL_SEED=$seed, $kills kills"
RANDOM=$((seed % 32768))

gfs key new user:root --admin -o "$T/root.key"
gfs key add "$T/keys" "$T/root.key"
mkdir "$T/md" "$T/journals"
printf '[gfs]\nmetad = unix:%s\nkey_file = %s\n' "$T/metad.sock" "$T/root.key" >"$T/gfs.conf"

start_metad()
{
	start_daemon -n metad gfs-metad --set "metad.listen=unix:$T/metad.sock" \
		--set "metad.keys=$T/keys" --set "metad.dir=$T/md" \
		--set "metad.session_timeout=$session_timeout" --set metad.recovery_window=10s \
		--set metad.segment=256KiB --set metad.unsaved=4MiB
}
# nap_ms MS
nap_ms() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }
# progress: how much the clients that are left have done, in bytes of journal.
progress() { cat "$T"/journals/journal.* | wc -c; }
moved_from() { [ "$(progress)" -gt "$1" ]; }
verify()
{
	expect_ok "$TOOLS/mdload" verify "$T/gfs.conf" "$T"/journals/journal.*
	echo "$output"
}
both_ended() { [ "$(grep -c 'session ends.*no contact' "$T/metad.log")" -eq 2 ]; }
# check_state ORPHANS SESSIONS: of the stopped metad, in a copy.
check_state()
{
	rm -rf "$T/copy"
	cp -r "$T/md" "$T/copy"
	expect_ok "$TOOLS/mdcheck" "$T/copy"
	assert_contains "$output" "orphans $1 sessions $2 problems 0"
}

start_metad
"$TOOLS/mdload" load "$T/gfs.conf" "$T/journals" 4 "$seed" >"$T/load.log" 2>&1 &
load_pid=$!
for i in 0 1 2 3; do
	wait_for test -s "$T/journals/journal.$i"
done

# -- kills at random moments
for ((i = 0; i < kills; i++)); do
	nap_ms $((RANDOM % (span_ms * 9 / 10) + span_ms / 10))
	kill_daemon metad
	start_metad
	# Each client compares its directory with what it was told, many times a second.
	! grep '^mdload:' "$T/load.log" || fail "a problem after kill $i"
done
wait_for moved_from "$(progress)"

# -- silence is no end: metad is stopped for longer than any lease
kill -STOP "$(daemon_pid metad)"
nap_ms 2500
kill -CONT "$(daemon_pid metad)"
wait_for moved_from "$(progress)"

# -- one client is killed, and one that has an open file without a name
"$TOOLS/mdload" orphan "$T/gfs.conf" >"$T/orphan.log" 2>&1 &
orphan_pid=$!
wait_log orphan ready
victim=$(awk '/^client 2 is process/ { print $5 }' "$T/load.log")
log_mark metad
kill -KILL "$orphan_pid" "$victim"
wait_for moved_from "$(progress)"

# -- the others leave
kill -TERM $load_pid
status=0
wait $load_pid || status=$?
cat "$T/load.log"
assert_equals $status 0 "status of the load"
assert_equals "$(grep -c ' 0 unknown$' "$T/load.log")" 3 "clients that always knew"
verify
wait_for both_ended
stop_daemon metad
check_state 0 0

# -- and all of it is there after a clean start
start_metad
verify

# -- a verifier that cannot complain proves nothing: other results, a name gone, one too many
mkdir "$T/forged"
forged=0
for code in p x C U; do
	cp "$T"/journals/journal.* "$T/forged"
	awk -v code=$code '$2 == code && !forged { number = $1 }
		$1 == number && $2 == "=" && $3 == 0 && !forged { $3 = -17; forged = 1 }
		{ print }' "$T/journals/journal.0" >"$T/forged/journal.0"
	# In a short run this client may never have won one of these.
	! cmp -s "$T/journals/journal.0" "$T/forged/journal.0" || continue
	forged=$((forged + 1))
	expect_fail -s 1 "$TOOLS/mdload" verify "$T/gfs.conf" "$T"/forged/journal.*
done
[ $forged -gt 0 ] || fail "nothing to forge"
expect_ok gfs rm --config "$T/gfs.conf" /shared/log0
expect_fail -s 1 "$TOOLS/mdload" verify "$T/gfs.conf" "$T"/journals/journal.*
assert_contains "$output" "/shared/log0"
expect_ok gfs mkdir --config "$T/gfs.conf" /c1.1/d9
expect_fail -s 1 "$TOOLS/mdload" verify "$T/gfs.conf" "$T"/journals/journal.*
assert_contains "$output" "/c1.1 has"
stop_daemon metad
