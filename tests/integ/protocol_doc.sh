#!/bin/bash
# docs/PROTOCOL.md is enough to write a client from: tests/lib/pyclient.py was, and it works.
. "$(dirname "$0")/../lib/testlib.sh"

pyclient() { python3 "$TOP/tests/lib/pyclient.py" "$@"; }

expect_ok pyclient examples "$TOP/docs/PROTOCOL.md"

make_keys >/dev/null
start_echod "127.0.0.1:0,tls:127.0.0.1:0,unix:$T/sock"
for address in "${echod_addresses[@]}"; do
	expect_ok pyclient talk "$address" "$T/alice.key"
	expect_ok pyclient push "$address" "$T/alice.key"
done
log=$(<"$T/gfs-echod.log")
assert_contains "$log" 'reason="wrong key' "log"
assert_contains "$log" 'reason="no common protocol version"' "log"
assert_contains "$log" 'reason="frame check failed (tampered or out of sync)"' "log"
assert_contains "$log" 'reason="acknowledges a push that was not sent"' "log"

# A server that ends says GOAWAY first.
mkfifo "$T/says"
pyclient goaway "${echod_addresses[0]}" "$T/alice.key" >"$T/says" 2>"$T/goaway.log" &
client=$!
read -r -t "$PATIENCE_SEC" line <"$T/says" || fail "the client did not connect"
assert_equals "$line" connected "first line of the client"
stop_daemon gfs-echod
wait "$client" || fail "the client saw no GOAWAY"
