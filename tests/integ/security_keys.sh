#!/bin/bash
# Wrong key, unknown user and expired key are refused: the log names peer and reason, the client
# learns no more than "authentication failed".
. "$(dirname "$0")/../lib/testlib.sh"

make_keys >/dev/null
# The same names with other secrets, a stranger, and one whose time was over long ago.
gfs key new user:alice -o "$T/wrong.key" >/dev/null
gfs key new user:mallory -o "$T/unknown.key" >/dev/null
gfs key new host:rogue -o "$T/rogue.key" >/dev/null
gfs key new user:carol -o "$T/carol.key" >/dev/null
sed 's/expires=[^ ]*/expires=2020-01-01T00:00:00Z/' "$T/carol.key" >>"$T/keys"

start_echod plain:127.0.0.1:0,tls:127.0.0.1:0 \
	--set echo.bulk_listen=plain:127.0.0.1:0,tls:127.0.0.1:0

# refused KEY ADDRESS IDENTITY REASON: refused there, with one log line that tells why, and a
# client that is told the same words in each case.
refused()
{
	log_mark gfs-echod
	expect_fail -s 1 gfs ping -q -k "$1" -c 1 -W 5s "$2"
	wait_log gfs-echod "connection refused" "peer=127.0.0.1:" "identity=$3" "reason=\"$4"
	local said part
	said=$(echo "$output" | grep '^gfs ping: ' | sed "s/$(port_of "$2")/PORT/g")
	for part in unknown expired "wrong key" "no such"; do
		assert_lacks "$said" "$part" "what the client is told"
	done
	assert_contains "$said" "authentication failed" "what the client is told"
	case $2 in
	tls:*) tls_says+=("$said") ;;
	*) plain_says+=("$said") ;;
	esac
}

plain_says=()
tls_says=()
for address in "${echod_addresses[@]}"; do
	refused "$T/wrong.key" "$address" user:alice "wrong key"
	refused "$T/unknown.key" "$address" user:mallory "unknown user"
	refused "$T/rogue.key" "$address" host:rogue "unknown host"
	refused "$T/carol.key" "$address" user:carol "expired key"
	expect_ok gfs ping -q -k "$T/alice.key" -c 1 "$address"
done
assert_equals "$(printf '%s\n' "${plain_says[@]}" | sort -u | wc -l)" 1 "different refusals, plain"
assert_equals "$(printf '%s\n' "${tls_says[@]}" | sort -u | wc -l)" 1 "different refusals, TLS"

# All of these were counted.
assert_equals "$(counter "${echod_addresses[0]}" refused)" 8 "refusals counted by the loop server"
assert_equals "$(counter "${echod_addresses[2]}" refused)" 8 "refusals counted by the threads"

# A key expires while the daemon runs: the clock decides at each handshake, not at loading.
# A connection that is open stays open.
stop_daemon gfs-echod
gfs key new user:dave -o "$T/dave.key" --expires 3s >/dev/null
gfs key add "$T/keys" "$T/dave.key" >/dev/null
expires=$(sed -n 's/.*expires=\([^ ]*\).*/\1/p' "$T/dave.key")
start_echod "plain:127.0.0.1:0"
expect_ok gfs ping -q -k "$T/dave.key" -c 1 "${echod_addresses[0]}"
expired() { [ "$(date +%s)" -gt "$(date -d "$expires" +%s)" ]; }
wait_for expired
refused "$T/dave.key" "${echod_addresses[0]}" user:dave "expired key"
stop_daemon gfs-echod
