#!/bin/bash
# gfs status tells whether the grid is healthy, as text, as JSON and as exit status, and who uses
# it to administrators only.
. "$(dirname "$0")/../lib/testlib.sh"

unset GFS_GRID GFS_CONFIG GFS_KEY
export HOME=$T
grid=$T/grid
# What gfs up starts is nobody's child: it must be stopped in each case.
stop_grid()
{
	local status=$?
	trap - EXIT ERR
	set +e
	cp "$grid/log/metad.log" "$T/metad.log"
	gfs down --dir "$grid" --force --timeout 2s >/dev/null 2>&1
	(exit $status)
	testlib_cleanup
}
trap stop_grid EXIT

# check EXPRESSION: about s, the JSON in $output.
check()
{
	python3 -c 'import json, sys
s = json.load(sys.stdin)
sys.exit(0 if eval(sys.argv[1]) else 1)' "$1" <<<"$output" || fail "not so: $1"$'\n'"$output"
}

expect_ok gfs up --dir "$grid"
# shellcheck source=/dev/null
. "$grid/env.sh"
expect_ok gfs status
assert_equals "$(head -n 1 <<<"$output")" healthy "first line"
for word in epoch uptime inodes sessions leases "on disk" "longest turn" "user:$(id -un)"; do
	assert_contains "$output" "$word"
done
expect_ok gfs status --json
check 's["healthy"] is True and s["problem"] == "" and s["recovering"] is False'
check 's["epoch"] >= 1 and s["inodes"] >= 1'
check '[(n["name"], n["kind"], n["host"], n["up"]) for n in s["nodes"]] == [("fsd1", "fsd", "host1", True)]'
check 's["nodes"][0]["capacity_bytes"] >= s["nodes"][0]["free_bytes"] > 0'
check 's["stored"] <= s["log_durable"] <= s["log_written"]'
check "{x['identity'] for x in s['sessions']} == {'user:$(id -un)', 'host:fsd1'}"
check 'any(x["program"].startswith("gfs-status/") and x["connections"] == 1 for x in s["sessions"])'
first=$output

# Who has asked leaves; a session that nobody ended would stay for a minute.
for ((i = 0; i < 20; i++)); do gfs status >/dev/null; done
few_sessions()
{
	output=$(gfs status --json)
	check 's["session_count"] < 10'
}
wait_for eval '(few_sessions)'

# A life later, as somebody who is no administrator.
expect_ok gfs down
gfs key new user:bob -o "$T/bob.key"
gfs key add "$grid/keys" "$T/bob.key"
echo "user bob 7777 7777" >>"$grid/users"
expect_ok gfs up
wait_for gfs status
printf '[gfs]\nmetad = unix:%s\nkey_file = bob.key\n' "$grid/run/metad.sock" >"$T/bob.conf"
expect_ok gfs status --json --config "$T/bob.conf"
check 's["healthy"] is True and s["sessions"] == [] and s["session_count"] >= 1'
check "s['epoch'] > $(python3 -c 'import json, sys; print(json.load(sys.stdin)["epoch"])' <<<"$first")"

# A metad that does not answer, or is not there, or not known.
pid=$(<"$grid/run/metad.pid")
kill -STOP "$pid"
expect_fail -s 1 gfs status --timeout 200ms
kill -CONT "$pid"
expect_ok gfs down
expect_fail -s 1 gfs status
output=$(gfs status --json 2>/dev/null || true)
check 's["healthy"] is False and s["problem"]'
unset GFS_CONFIG
expect_fail -s 1 gfs status
assert_contains "$output" "no configuration found"

expect_fail -s 2 gfs status here
expect_fail -s 2 gfs status --timeout never
expect_fail -s 2 gfs status --no-such-option
