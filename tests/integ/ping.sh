#!/bin/bash
# gfs ping reaches the daemon over every transport, and says clearly what is wrong when it cannot.
. "$(dirname "$0")/../lib/testlib.sh"

make_keys >/dev/null
start_echod "plain:127.0.0.1:0,tls:127.0.0.1:0,unix:$T/echod.sock,tls:unix:$T/echod-tls.sock" \
	--set echo.bulk_listen=plain:127.0.0.1:0,tls:127.0.0.1:0
assert_equals ${#echod_addresses[@]} 6 "addresses"

# Every listener: three on the loop's side, the last two served by threads.
transports=(tcp tls unix tls+unix tcp tls)
for i in "${!echod_addresses[@]}"; do
	expect_ok gfs ping -k "$T/alice.key" -c 3 -i 1ms "${echod_addresses[$i]}"
	assert_contains "$output" "reply 3 from echod (${transports[$i]})"
	assert_contains "$output" "you are user:alice"
	assert_contains "$output" "3 sent, 3 received"
	expect_ok gfs ping -k "$T/alice.key" -c 2 -i 0 --json "${echod_addresses[$i]}"
	echo "$output" | python3 -c '
import json, sys
result = json.load(sys.stdin)
assert result["transport"] == sys.argv[1], result
assert result["identity"] == "user:alice" and result["server"] == "echod", result
assert (result["sent"], result["received"]) == (2, 2), result
assert 0 < result["min_us"] <= result["p50_us"] <= result["p99_us"] <= result["max_us"], result
' "${transports[$i]}"
done
plain=${echod_addresses[0]}

# Quiet: two lines. The key may come from the environment.
expect_ok env GFS_KEY="$T/alice.key" gfs ping -q -c 2 -i 0 "$plain"
assert_equals "$(echo "$output" | wc -l)" 2 "lines of a quiet ping"

# Wrong usage is status 2 and says what is wanted; nothing is sent.
expect_fail -s 2 gfs ping
assert_contains "$output" "ADDRESS"
expect_fail -s 2 env -u GFS_KEY gfs ping "$plain"
assert_contains "$output" "--key"
expect_fail -s 2 gfs ping -k "$T/alice.key" -c 0 "$plain"
assert_contains "$output" "--count 0"
expect_fail -s 2 gfs ping -k "$T/alice.key" -c ten "$plain"
assert_contains "$output" "--count ten"
expect_fail -s 2 gfs ping -k "$T/alice.key" -i fast "$plain"
assert_contains "$output" "--interval fast"
expect_fail -s 2 gfs ping -k "$T/alice.key" -W 0 "$plain"
assert_contains "$output" "--timeout 0"
expect_fail -s 2 gfs ping --no-such-option
expect_fail -s 2 gfs ping -k "$T/alice.key" "$plain" "$plain"
expect_fail -s 2 gfs pong
assert_contains "$output" "ping"
expect_ok gfs ping --help
assert_contains "$output" "--timeout"

# An address that cannot be one, and plain beyond this machine.
expect_fail gfs ping -k "$T/alice.key" nonsense
assert_contains "$output" "HOST:PORT"
expect_fail gfs ping -k "$T/alice.key" plain:0.0.0.0:1
assert_contains "$output" "loopback"

# Nobody there: one line, status 1, at once.
begin=$SECONDS
port=$(port_of "$plain")
stop_daemon gfs-echod
for address in "127.0.0.1:$port" "tls:127.0.0.1:$port" "unix:$T/echod.sock"; do
	expect_fail -s 1 gfs ping -q -k "$T/alice.key" -c 1 "$address"
	assert_equals "$(echo "$output" | grep -c '^gfs ping: ')" 1 "lines of complaint"
	assert_contains "$output" "${address#tls:}" "the complaint"
	assert_contains "$output" "0 received"
done
[ $((SECONDS - begin)) -lt "$PATIENCE_SEC" ] || fail "took $((SECONDS - begin)) s to see nobody"

# A key that others can read is refused with the remedy.
chmod 0644 "$T/alice.key"
expect_fail -s 1 gfs ping -k "$T/alice.key" -c 1 "$plain"
assert_contains "$output" "$T/alice.key"
assert_contains "$output" "chmod 600"
chmod 0600 "$T/alice.key"
expect_fail -s 1 gfs ping -k "$T/nobody.key" -c 1 "$plain"
assert_contains "$output" "No such file"
expect_fail -s 1 gfs ping -k "$T/keys" -c 1 "$plain"
assert_contains "$output" "exactly one key"
