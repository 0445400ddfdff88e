#!/bin/bash
# A daemon does not listen beyond this machine without TLS unless told so loudly, and does not
# start with a key table that others can read. Nothing is sent to any address but loopback.
. "$(dirname "$0")/../lib/testlib.sh"

make_keys >/dev/null
# With a time-out: a daemon that wrongly starts would run for ever.
base=(timeout "$PATIENCE_SEC" gfs-echod --set "echo.keys=$T/keys")
bare=(timeout "$PATIENCE_SEC" gfs-echod --set echo.listen=127.0.0.1:0)

# Plain on all addresses: refused before anything is bound, also by --check-config.
for address in plain:0.0.0.0:0 "plain:[::]:0"; do
	for key in listen bulk_listen; do
		expect_fail -s 2 "${base[@]}" --set "echo.$key=$address"
		assert_contains "$output" "$address"
		assert_contains "$output" "loopback"
		assert_contains "$output" "use tls:"
		expect_fail "${base[@]}" --check-config --set "echo.$key=$address"
	done
done
# One bad address among good ones is enough.
expect_fail -s 2 "${base[@]}" --set "echo.listen=127.0.0.1:0,plain:0.0.0.0:0,tls:127.0.0.1:0"
assert_contains "$output" "plain:0.0.0.0:0"

# Without a prefix it is TLS by itself, and no warning.
start_echod 0.0.0.0:0
assert_contains "${echod_addresses[0]}" "tls:0.0.0.0:"
assert_lacks "$(<"$T/gfs-echod.log")" INSECURE
expect_ok gfs ping -q -k "$T/alice.key" -c 1 "tls:127.0.0.1:$(port_of "${echod_addresses[0]}")"
expect_fail gfs ping -q -k "$T/alice.key" -c 1 "plain:127.0.0.1:$(port_of "${echod_addresses[0]}")"
stop_daemon gfs-echod

# Told so: it starts, with a warning that cannot be missed.
log_mark gfs-echod
start_echod plain:0.0.0.0:0 --set echo.insecure=yes
has_line "$T/gfs-echod.log" warning INSECURE || fail "no warning about insecure = yes"
stop_daemon gfs-echod

# A key table that group or others can read, that is no regular file, or is absent.
for mode in 0640 0604 0660; do
	chmod $mode "$T/keys"
	expect_fail -s 2 "${base[@]}" --set echo.listen=127.0.0.1:0
	assert_contains "$output" "$T/keys"
	assert_contains "$output" "chmod 600"
done
chmod 0600 "$T/keys"
expect_fail -s 2 "${bare[@]}" --set "echo.keys=$T"
assert_contains "$output" "regular file"
expect_fail -s 2 "${bare[@]}" --set "echo.keys=$T/absent"
assert_contains "$output" "$T/absent"
expect_fail -s 2 "${bare[@]}"
assert_contains "$output" "keys"

# A broken line names file and line, never the key.
cp "$T/keys" "$T/broken"
secret=$(sed -n 's/.*key=\([0-9a-f]*\).*/\1/p' "$T/alice.key")
echo "user:eve key=${secret}0" >>"$T/broken"
expect_fail -s 1 "${bare[@]}" --set "echo.keys=$T/broken"
assert_contains "$output" "$T/broken:4"
assert_lacks "$output" "$secret"
