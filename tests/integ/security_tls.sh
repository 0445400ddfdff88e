#!/bin/bash
# The TLS side is standard TLS 1.3 with an external PSK: another implementation's client gets in
# with the right key, and not with an older version, a wrong key, no key or without key exchange.
. "$(dirname "$0")/../lib/testlib.sh"

command -v openssl >/dev/null || skip "needs the openssl command"
make_keys >/dev/null
hex=$(sed -n 's/.*key=\([0-9a-f]*\).*/\1/p' "$T/alice.key")
start_echod tls:127.0.0.1:0 --set echo.bulk_listen=tls:127.0.0.1:0

# client PORT ARGS...: the status of s_client says little, so the text is what is judged.
client()
{
	local port=$1
	shift
	output=$(timeout "$PATIENCE_SEC" openssl s_client -connect "127.0.0.1:$port" "$@" \
		</dev/null 2>&1) || true
}

# refused_client REASON ARGS...
refused_client()
{
	local reason=$1
	shift
	log_mark gfs-echod
	client "$port" "$@"
	assert_contains "$output" " alert " "the client's text"
	assert_lacks "$output" "Reused, TLSv1.3" "the client's text"
	wait_log gfs-echod "connection refused" "peer=127.0.0.1:" transport=tls "reason=\"$reason"
}

for address in "${echod_addresses[@]}"; do
	port=$(port_of "$address")
	client "$port" -tls1_3 -psk "$hex" -psk_identity user:alice
	assert_contains "$output" "Reused, TLSv1.3, Cipher is TLS_AES_128_GCM_SHA256"
	assert_contains "$output" "Server Temp Key: X25519"

	refused_client "TLS below 1.3 refused (downgrade)" -tls1_2
	refused_client "TLS below 1.3 refused (downgrade)" -tls1_2 -psk "$hex" \
		-psk_identity user:alice -cipher PSK
	refused_client "no usable identity offered" -tls1_3
	refused_client "wrong key" -tls1_3 -psk "${hex%??}00ff" -psk_identity user:alice
	refused_client "unknown user" -tls1_3 -psk "$hex" -psk_identity user:mallory
	refused_client "malformed identity" -tls1_3 -psk "$hex" -psk_identity Client_identity
	# Another suite, whose hash does not fit the key.
	refused_client "" -tls1_3 -psk "$hex" -psk_identity user:alice \
		-ciphersuites TLS_AES_256_GCM_SHA384
	expect_ok gfs ping -q -k "$T/alice.key" -c 1 "$address"
done

# A stranger cannot find out who exists: wrong key and unknown user get the same alert.
port=$(port_of "${echod_addresses[0]}")
alert() { echo "$output" | sed -n 's/.*SSL alert number //p'; }
client "$port" -tls1_3 -psk "${hex%??}00ff" -psk_identity user:alice
wrong=$(alert)
client "$port" -tls1_3 -psk "${hex%??}00ff" -psk_identity user:mallory
[ -n "$wrong" ] || fail "no alert for a wrong key"
assert_equals "$(alert)" "$wrong" "alert for an unknown user"

# Whoever has the key and then talks HTTP inside TLS has broken the protocol.
log_mark gfs-echod
magic='reason="not a frame (bad magic)"'
{
	printf 'GET / HTTP/1.0\r\nHost: localhost\r\nUser-Agent: browser\r\nAccept: */*\r\n\r\n'
	wait_log gfs-echod "connection refused" "$magic"
} |
	timeout "$PATIENCE_SEC" openssl s_client -quiet -connect "127.0.0.1:$port" -tls1_3 \
		-psk "$hex" -psk_identity user:alice >/dev/null 2>&1 || true
wait_log gfs-echod "connection refused" "$magic"
stop_daemon gfs-echod
