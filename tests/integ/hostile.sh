#!/bin/bash
# A million random and mutated frames, cut handshakes, 1,000 half-open connections, absurd lengths,
# swollen messages, peers that never read or send a byte at a time: the daemon stays up, answers an
# honest client all the while, and its memory stays under a bound.
#
# HOSTILE_FRAMES and HOSTILE_SEED choose other numbers; the seed is printed.
. "$(dirname "$0")/../lib/testlib.sh"

frames=${HOSTILE_FRAMES:-1000000}
[ -z "$SANITIZE" ] || frames=${HOSTILE_FRAMES:-100000}
seed=${HOSTILE_SEED:-$RANDOM$RANDOM}

# The bound, from the limits in common/gx_limits.h and what the attack holds at one time:
#	replay tables and remembered replies, all sessions    64 MiB  GX_REPLAY_BYTES_MAX
#	2 peers that do not read: queue and one message  2 x (8 + 1)  GX_OUT_QUEUE_PER_CONN_MAX
#	1 message being unpacked per loop and thread, 5 x 4 = 20 MiB  GX_UNPACK_MAX
#	about 1,100 half-open, with their handshake state   ~ 12 MiB
#	sessions, threads, TLS, and what malloc keeps        ~ 14 MiB
rss_growth_max_kib=$((128 * 1024))

make_keys >/dev/null
gfs key new user:mallory -o "$T/mallory.key" >/dev/null
gfs key add "$T/keys" "$T/mallory.key" >/dev/null
# A thousand connections and more must fit whatever soft limit the daemon was started with.
ulimit -Sn 1024
start_echod "plain:127.0.0.1:0,tls:127.0.0.1:0,unix:$T/echod.sock" \
	--set echo.bulk_listen=plain:127.0.0.1:0,tls:127.0.0.1:0 --set echo.handshake_timeout=5s
ulimit -Sn "$(ulimit -Hn)"
pid=$(daemon_pid gfs-echod)
plain=${echod_addresses[0]}

# The buffers behind echo.source are made at first use and are not the attack's doing.
for address in "$plain" "${echod_addresses[3]}"; do
	expect_ok "$TOOLS/wirepeer" source "$address" "$T/alice.key" 1
done
rss_kib() { awk -v row="$1:" '$1 == row { print $2 }' "/proc/$pid/status"; }
before_kib=$(rss_kib VmRSS)

# The honest ones: a plain one and one behind TLS.
honest=()
for i in 0 1; do
	mkfifo "$T/honest$i.in"
	"$TOOLS/honest" "${echod_addresses[$i]}" "$T/alice.key" <"$T/honest$i.in" \
		>"$T/honest$i.out" 2>"$T/honest$i.log" &
	honest+=($!)
done
exec 5>"$T/honest0.in" 6>"$T/honest1.in"
for i in 0 1; do wait_for grep -qx ready "$T/honest$i.out"; done

status=0
"$TOOLS/hostile" "$frames" "$seed" "$T/mallory.key" "$T/admin.key" "${echod_addresses[@]}" \
	5>&- 6>&- || status=$?
exec 5>&- 6>&-
for i in 0 1; do wait "${honest[$i]}" || status=1; done
tail -qn 1 "$T/honest0.out" "$T/honest1.out"
[ $status -eq 0 ] || fail "the daemon or an honest client did not hold (see above)"

kill -0 "$pid" || fail "the daemon is gone"
for address in "${echod_addresses[@]}"; do
	expect_ok gfs ping -q -k "$T/alice.key" -c 1 "$address"
done
grew_kib=$(($(rss_kib VmHWM) - before_kib))
echo "memory: $before_kib KiB before, at most $grew_kib KiB more (bound $rss_growth_max_kib KiB)"
if [ -z "$SANITIZE" ]; then
	[ $grew_kib -le $rss_growth_max_kib ] || fail "memory grew by $grew_kib KiB"
fi
# What happened was counted, and logged within the rate limit instead of a line each.
[ "$(counter "$plain" garbage)" -gt 0 ] || fail "no breach was counted"
[ "$(counter "$plain" refused)" -gt 0 ] || fail "no refusal was counted"
lines=$(wc -l <"$T/gfs-echod.log")
[ "$lines" -lt 20000 ] || fail "$lines lines of log"
stop_daemon gfs-echod
