#!/bin/bash
# The configuration is checked completely before anything starts; what is wrong is named with file
# and line; files, drop-ins and --set take precedence in this order; a dump reads back the same.
. "$(dirname "$0")/../lib/testlib.sh"

make_keys >/dev/null
conf=$T/echod.conf
write() { printf '%s\n' "$@" >"$conf"; }
dumped() { gfs-echod -c "$conf" "${@:2}" --dump-config | sed -n "s/^$1 = //p"; }

# Good: status 0, no word.
write "[echo]" "# a comment" "keys = keys" "listen = 127.0.0.1:0, unix:/tmp/some.sock" \
	"handshake_timeout = 1.5s" "insecure = off"
expect_ok gfs-echod -c "$conf" --check-config
assert_equals "$output" "" "output of a good check"

# A path is relative to its file, whatever the working directory.
assert_equals "$(cd / && dumped keys)" "$T/keys" "keys"
assert_equals "$(dumped handshake_timeout)" 1500ms "handshake_timeout"

# Unknown key and section: file, line, nearest match. All problems in one run.
write "[echo]" "keys = keys" "lisen = 127.0.0.1:0" "connections_max = many" "half_open_max = 0" \
	"[deamon]" "log_level = info" "[daemon]" "log_level = loud"
expect_fail -s 2 gfs-echod -c "$conf" --check-config
checked=$output
assert_contains "$checked" "$conf:3: "
assert_contains "$checked" '"lisen"'
assert_contains "$checked" 'did you mean "listen"?'
assert_contains "$checked" "$conf:4: "
assert_contains "$checked" "$conf:5: "
assert_contains "$checked" "$conf:6: "
assert_contains "$checked" "daemon"
# The same text, with the status of a wrong configuration, when it should really start.
expect_fail -s 2 timeout "$PATIENCE_SEC" gfs-echod -c "$conf"
assert_equals "$output" "$checked" "text of a start with the same mistakes"

# Other mistakes, one each.
mistake() # LINE PART: the line is refused, with that part in the text
{
	write "[echo]" "keys = keys" "$1"
	expect_fail -s 2 gfs-echod -c "$conf" --check-config
	assert_contains "$output" "$conf"
	assert_contains "$output" "$2"
}
mistake "no equals sign" ":3: "
mistake "name" ":3: "
mistake "keys = again" ":3: "
mistake "[echo" ":3: "
mistake "handshake_timeout = 10" ":3: "
mistake "handshake_timeout = 1us" ":3: "
mistake "insecure = perhaps" ":3: "
mistake "connections_max = 99999999999999999999" ":3: "
mistake "listen = a,,b" ":3: "
write "[echo]" "keys = keys" "listen = nonsense"
expect_fail -s 2 gfs-echod -c "$conf" --check-config
assert_contains "$output" "nonsense"
write "[echo]" "name = x"
expect_fail -s 2 gfs-echod -c "$conf" --check-config
assert_contains "$output" "keys"
expect_fail gfs-echod -c "$T/absent.conf" --check-config
assert_contains "$output" "$T/absent.conf"

# Precedence: built-in < file < drop-ins by name < --set, the last --set wins.
write "[echo]" "keys = keys"
assert_equals "$(dumped connections_max)" 4096 "built-in"
write "[echo]" "keys = keys" "connections_max = 1" "half_open_max = 1"
assert_equals "$(dumped connections_max)" 1 "file"
mkdir "$conf.d"
printf '[echo]\nconnections_max = 20\nhalf_open_max = 20\n' >"$conf.d/20-b.conf"
printf '[echo]\nconnections_max = 10\n' >"$conf.d/10-a.conf"
printf '[echo]\nconnections_max = 30\n' >"$conf.d/30-c.conf.off"
assert_equals "$(dumped connections_max)" 20 "drop-ins"
assert_equals "$(dumped half_open_max)" 20 "drop-ins"
assert_equals "$(dumped connections_max --set echo.connections_max=40)" 40 "--set"
twice=(--set echo.connections_max=40 --set echo.connections_max=50)
assert_equals "$(dumped connections_max "${twice[@]}")" 50 "the last --set"
printf '[echo]\nconections_max = 10\n' >"$conf.d/10-a.conf"
expect_fail -s 2 gfs-echod -c "$conf" --check-config
assert_contains "$output" "$conf.d/10-a.conf:2: "
rm -r "$conf.d"
expect_fail -s 2 timeout "$PATIENCE_SEC" gfs-echod -c "$conf" --set echo.connection_max=4
assert_contains "$output" 'did you mean "connections_max"?'
expect_fail -s 2 timeout "$PATIENCE_SEC" gfs-echod -c "$conf" --set connections_max=4
expect_fail -s 2 timeout "$PATIENCE_SEC" gfs-echod -c "$conf" --set echo.connections_max

# A dump is a configuration: it reads back to the same dump, whatever is in it.
write "[daemon]" "log_level = info,rpc=debug" "log_file = some log.log" "[echo]" "keys = keys" \
	"listen = 127.0.0.1:0,tls:[::1]:0,unix:$T/with space.sock" "name = a = b # c" "insecure = yes" \
	"handshake_timeout = 2m" "session_linger = 1d" "connections_max = 12"
gfs-echod -c "$conf" --dump-config >"$T/first.conf"
gfs-echod -c "$T/first.conf" --dump-config >"$T/second.conf"
cmp "$T/first.conf" "$T/second.conf"
assert_contains "$(<"$T/first.conf")" "name = a = b # c"
assert_contains "$(<"$T/first.conf")" "connections_max = 12"
# The sample is one too, once the one thing that must be said is said.
gfs-echod --sample-config >"$T/sample.conf"
expect_fail -s 2 gfs-echod -c "$T/sample.conf" --check-config
expect_ok gfs-echod -c "$T/sample.conf" --set "echo.keys=$T/keys" --check-config

# Options.
for bad in --nonsense -x extra --config --ready-fd=99; do expect_fail -s 2 gfs-echod $bad; done
expect_ok gfs-echod --help
assert_contains "$output" "--check-config"
expect_ok gfs-echod --version
assert_contains "$output" "gfs-echod (Gridstage)"
