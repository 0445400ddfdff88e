#!/bin/bash
# A frame changed after a good handshake ends its connection, is counted and logged; so does a
# TLS record changed on the way. Other connections do not notice.
. "$(dirname "$0")/../lib/testlib.sh"

make_keys >/dev/null
start_echod "plain:127.0.0.1:0,tls:127.0.0.1:0,unix:$T/echod.sock" \
	--set echo.bulk_listen=plain:127.0.0.1:0,tls:127.0.0.1:0
tls=${echod_addresses[1]}

# One bit in: method, request id, trace, remaining time, check, message. (The others, such as
# magic and lengths, have reasons of their own, tested in the unit tests.)
for address in "${echod_addresses[@]}"; do
	before=$(counter "$address" garbage)
	for byte in 8 24 32 40 56 68; do
		log_mark gfs-echod
		expect_ok "$TOOLS/wirepeer" tamper "$address" "$T/alice.key" $byte 3
		assert_equals "$output" dropped "byte $byte changed on $address"
		wait_log gfs-echod "connection dropped" "peer=" identity=user:alice \
			'reason="frame check failed'
		sleep 0.11 # a call site logs ten lines a second, and each of these must be seen
	done
	after=$(counter "$address" garbage)
	assert_equals $((after - before)) 6 "connections dropped on $address"
done

# A record changed on its way.
for address in "$tls" "${echod_addresses[4]}"; do
	log_mark gfs-echod
	# 200 pings make some 20 kB: byte 10,000 is far behind the handshake, inside a record.
	relay "$(port_of "$address")" 10000
	expect_fail -s 1 gfs ping -q -k "$T/alice.key" -c 200 -i 0 -W 5s "tls:127.0.0.1:$relay_port"
	wait_log gfs-echod "connection dropped" "peer=127.0.0.1:" identity=user:alice \
		'reason="tampered record"'
	exec 8>&-
	expect_ok gfs ping -q -k "$T/alice.key" -c 1 "$address"
done
stop_daemon gfs-echod
