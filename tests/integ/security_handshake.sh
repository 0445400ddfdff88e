#!/bin/bash
# A replayed, relayed or downgraded handshake is refused and the log says why; TLS, which hides
# everything from a relay, works through one.
. "$(dirname "$0")/../lib/testlib.sh"

make_keys >/dev/null
start_echod "plain:127.0.0.1:0,tls:127.0.0.1:0,unix:$T/echod.sock" \
	--set echo.bulk_listen=plain:127.0.0.1:0,tls:127.0.0.1:0
plain=${echod_addresses[0]}
tls=${echod_addresses[1]}
unix=${echod_addresses[2]}
bulk=${echod_addresses[3]}

# Replay: bytes of a good handshake, sent again on a new connection.
for address in "$plain" "$unix" "$bulk"; do
	log_mark gfs-echod
	expect_ok "$TOOLS/wirepeer" replay "$address" "$T/alice.key"
	assert_equals "$output" "refused: authentication failed" "replay on $address"
	wait_log gfs-echod "connection refused" "peer=" identity=user:alice \
		'reason="wrong key or changed handshake"'
done

# Relay: the addresses of both ends are part of what is proven, so a man in the middle on another
# port cannot pass a plain handshake on.
for address in "$plain" "$bulk"; do
	log_mark gfs-echod
	relay "$(port_of "$address")"
	expect_fail -s 1 gfs ping -q -k "$T/alice.key" -c 1 "127.0.0.1:$relay_port"
	assert_contains "$output" "authentication failed"
	wait_log gfs-echod "connection refused" "peer=127.0.0.1:" identity=user:alice \
		'reason="wrong key or changed handshake"'
	exec 8>&-
done
relay "$(port_of "$tls")"
expect_ok gfs ping -q -k "$T/alice.key" -c 3 -i 0 "tls:127.0.0.1:$relay_port"
exec 8>&-

# Downgrade: a mechanism that the port does not have (2 TLS, 3 kept for certificates, 0 none).
for mechanism in 2 3 0; do
	log_mark gfs-echod
	expect_ok "$TOOLS/wirepeer" mechanism "$plain" "$T/alice.key" $mechanism
	assert_equals "$output" "refused: authentication failed" "mechanism $mechanism"
	wait_log gfs-echod "connection refused" "peer=127.0.0.1:" identity=user:alice \
		'reason="mechanism not offered here (downgrade)"'
done
# The honest mechanism gets as far as a challenge (frame 2): the refusals above were no accident.
expect_ok "$TOOLS/wirepeer" mechanism "$plain" "$T/alice.key" 1
assert_equals "$output" "frame 2" "mechanism 1"

# Plain client on a TLS port and the reverse: refused, both ends say what it looks like.
for address in "$tls" "${echod_addresses[4]}"; do
	log_mark gfs-echod
	expect_fail -s 1 gfs ping -q -k "$T/alice.key" -c 1 "plain:127.0.0.1:$(port_of "$address")"
	assert_contains "$output" "TLS"
	wait_log gfs-echod "connection refused" "peer=127.0.0.1:" transport=tls \
		'reason="peer does not speak TLS (plain client on a TLS port?)"'
done
for address in "$plain" "$bulk"; do
	log_mark gfs-echod
	expect_fail -s 1 gfs ping -q -k "$T/alice.key" -c 1 "tls:127.0.0.1:$(port_of "$address")"
	assert_contains "$output" "gfs ping: "
	wait_log gfs-echod "connection refused" "peer=127.0.0.1:" transport=tcp \
		'reason="peer speaks TLS on a plain connection"'
done

# And after all this an honest client gets in everywhere.
for address in "${echod_addresses[@]}"; do
	expect_ok gfs ping -q -k "$T/alice.key" -c 1 "$address"
done
stop_daemon gfs-echod
