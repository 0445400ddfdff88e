#!/bin/bash
# The demo of the README runs, says at the end what happened, and leaves nothing behind.
. "$(dirname "$0")/../lib/testlib.sh"

unset GFS_GRID GFS_CONFIG GFS_KEY
mkdir "$T/tmp"
expect_ok env TMPDIR="$T/tmp" BUILD="$BUILD" "$TOP/tools/demo"
last=$(echo "$output" | tail -n 1)
[[ $last == "demo: OK: "* ]] || fail "last line of the demo: $last"
assert_equals "$(grep -c '^The grid remembers.$' <<<"$output")" 2 "letters read, one after the crash"
assert_contains "$output" "healthy"
assert_lacks "$output" "NOT healthy"
assert_contains "$output" "authentication failed"
assert_equals "$(find "$T/tmp" -mindepth 1)" "" "files left"
if pgrep -f "$T/tmp" >"$T/left.out"; then fail "processes left: $(<"$T/left.out")"; fi

# And when it is stopped in the middle.
TMPDIR=$T/tmp BUILD=$BUILD "$TOP/tools/demo" >"$T/demo.out" 2>&1 &
demo=$!
wait_for grep -q "is up; you are" "$T/demo.out"
kill -TERM $demo
status=0
wait $demo || status=$?
last=$(tail -n 1 "$T/demo.out")
[ $status -ne 0 ] || [[ $last == "demo: OK: "* ]] || fail "stopped, but status 0"
assert_equals "$(find "$T/tmp" -mindepth 1)" "" "files left"
if pgrep -f "$T/tmp" >"$T/left.out"; then fail "processes left: $(<"$T/left.out")"; fi
