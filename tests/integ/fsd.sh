#!/bin/bash
# The storage daemon by itself: what it refuses, that it registers with the right key only, that it
# starts without metad, and how it ends.
. "$(dirname "$0")/../lib/testlib.sh"

make_keys >/dev/null
gfs key new host:fsd1 -o "$T/fsd1.key" >/dev/null
gfs key new host:fsd2 -o "$T/fsd2.key" >/dev/null
gfs key add "$T/keys" "$T/fsd1.key" >/dev/null
mkdir "$T/spool" "$T/metad"
cat >"$T/fsd.conf" <<CONF
[fsd]
key = fsd1.key
keys = keys
metad = unix:$T/metad.sock
listen = unix:$T/fsd.sock, 127.0.0.1:0
address_file = fsd.addr
spools = $T/spool
host = here
CONF
fsd() { gfs-fsd -c "$T/fsd.conf" "$@"; }
# starts_not PART ARGS...: it does not start, and says so.
starts_not()
{
	local part=$1
	shift
	expect_fail -s 1 timeout "$PATIENCE_SEC" gfs-fsd -c "$T/fsd.conf" "$@"
	assert_contains "$output" "$part"
}
start() { start_daemon gfs-fsd -c "$T/fsd.conf" "$@"; }
start_metad()
{
	start_daemon gfs-metad --set "metad.keys=$T/keys" --set "metad.dir=$T/metad" \
		--set "metad.listen=unix:$T/metad.sock"
}

# -- configuration
expect_ok fsd --check-config
assert_equals "$output" "" "output of a good check"
mistake() # SETTING PART
{
	expect_fail -s 2 gfs-fsd -c "$T/fsd.conf" --set "$1" --check-config
	assert_contains "$output" "$2"
}
mistake fsd.spools=relative/path "not an absolute path"
mistake "fsd.name=a b" "fsd.name"
mistake fsd.host=-x "fsd.host"
mistake fsd.listen=tls:0.0.0.0:0 "no address to connect to"
mistake fsd.addresses=tls:0.0.0.0:1 "no address to connect to"
mistake fsd.metad=nonsense "nonsense"
mistake fsd.metad= "metad must be set"
mistake fsd.sync_after=6s "sync_after"
mistake fsd.listen= "fsd.listen"
expect_ok fsd --set fsd.listen=tls:0.0.0.0:0 --set fsd.addresses=tls:127.0.0.1:7611 --check-config
fsd --dump-config >"$T/first.conf"
gfs-fsd -c "$T/first.conf" --dump-config >"$T/second.conf"
cmp "$T/first.conf" "$T/second.conf"

# -- rule N9: an empty directory is no spool
starts_not "No such device"
assert_equals "$(ls -A "$T/spool")" "" "what a refused start leaves"
starts_not "not that of this node" --set fsd.make_spools=yes --set fsd.name=other
chmod 644 "$T/fsd1.key"
expect_fail timeout "$PATIENCE_SEC" gfs-fsd -c "$T/fsd.conf" --set fsd.make_spools=yes
assert_contains "$output" "fsd1.key"
chmod 600 "$T/fsd1.key"

# -- without metad it serves; a second one on the same spool does not
start --set fsd.make_spools=yes
wait_log gfs-fsd "metad does not take this node"
mapfile -t addresses <"$T/fsd.addr"
assert_equals "${addresses[0]}" "unix:$T/fsd.sock" "the first address"
for address in "${addresses[@]}"; do
	expect_ok "$TOOLS/wirepeer" stats "$address" "$T/admin.key"
	expect_ok gfs ping --key "$T/alice.key" -c 1 "$address"
	expect_fail gfs ping --key "$T/fsd2.key" -c 1 "$address"
	assert_contains "$output" "refused"
done
starts_not "resource busy" --set "fsd.listen=unix:$T/other.sock" --set "fsd.address_file=$T/other"

# -- it registers when metad is there, and when metad comes back
start_metad
wait_log gfs-fsd "registered with metad" "name=fsd1"
wait_log gfs-metad "node is up" "node=fsd1"
log_mark gfs-fsd
kill_daemon gfs-metad
start_metad
wait_log gfs-fsd "registered with metad" "name=fsd1"

# -- the end: soon, quiet, and nothing is left behind
stop_daemon gfs-fsd
[ ! -e "$T/fsd.addr" ] || fail "the address file is still there"
[ ! -e "$T/fsd.sock" ] || fail "the socket is still there"
log_mark gfs-fsd
start
wait_log gfs-fsd "registered with metad"
kill_daemon gfs-fsd
start
stop_daemon gfs-fsd

# -- one that metad has no key of, and one with the name of another
log_mark gfs-fsd
mkdir "$T/spool2"
start --set "fsd.key=$T/fsd2.key" --set "fsd.spools=$T/spool2" --set fsd.make_spools=yes
wait_log gfs-fsd "metad does not take this node"
stop_daemon gfs-fsd
assert_lacks "$(<"$T/gfs-metad.log")" "node=fsd2"
stop_daemon gfs-metad
