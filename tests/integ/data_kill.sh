#!/bin/bash
# A storage node is killed: what was synced is there, what is being written goes on, what is being
# read comes from the other copy; a writer that is killed leaves a file that can be read; what is
# away is waited for as long as it says in docs/CONSISTENCY.md.
#
# DATA_BYTES: size of the files (tests/soak/data_kill.sh: 1 GiB). DATA_PAUSE_MS: between pieces.
. "$(dirname "$0")/../lib/gridlib.sh"

size=${DATA_BYTES:-$((24 * 1024 * 1024))}
pause=${DATA_PAUSE_MS:-20}
[ -z "$SANITIZE" ] || size=$((size / 4))
grid_up 1

# -- fsync, kill -9, close, and the node is back: every byte
background synced "$TOOLS/datatool" write /synced "$size" 1 sync wait
wait_for has_line "$T/synced.out" written
grid_kill fsd1
close_input
background_ok synced
grid_up 1
expect_ok datatool read /synced "$size" 1 seq

# -- kill -9 during a write, and back: the write goes on
"$TOOLS/datatool" slow /going "$size" 2 "$pause" >"$T/going.out" 2>&1 &
writer=$!
going_has() { [ "$(gfs stat --json /going 2>/dev/null | python3 -c 'import json, sys
print(int(json.load(sys.stdin)[0]["size"] > int(sys.argv[1])))' "$1" 2>/dev/null)" = 1 ]; }
wait_for going_has $((size / 8))
grid_kill fsd1
grid_up 1
wait $writer || fail "the writer: $(cat "$T/going.out")"
expect_ok datatool read /going "$size" 2 seq

# -- the writer is killed: the file has a beginning of what he wrote, and goes on living (rule B2)
"$TOOLS/datatool" slow /cut "$size" 3 200 >"$T/cut.out" 2>&1 &
writer=$!
cut_has() { [ "$(gfs stat --json /cut 2>/dev/null | python3 -c 'import json, sys
print(int(json.load(sys.stdin)[0]["size"] > 1 << 20))' 2>/dev/null)" = 1 ]; }
wait_for cut_has
kill -KILL $writer || fail "the writer has ended: $(cat "$T/cut.out")"
wait $writer 2>/dev/null || true
expect_ok gfs get /cut "$T/cut"
cut_size=$(stat -c %s "$T/cut")
[ "$cut_size" -gt $((1024 * 1024)) ] || fail "only $cut_size bytes are left"
expect_ok datatool read /cut "$cut_size" 3 seq
expect_ok datatool write /cut $((1024 * 1024)) 4
expect_ok datatool read /cut $((1024 * 1024)) 4 seq

# -- metad is killed while a file is written
"$TOOLS/datatool" slow /through "$size" 5 "$pause" >"$T/through.out" 2>&1 &
writer=$!
through_has() { [ "$(gfs stat --json /through 2>/dev/null | python3 -c 'import json, sys
print(int(json.load(sys.stdin)[0]["size"] > 1 << 20))' 2>/dev/null)" = 1 ]; }
wait_for through_has
grid_kill metad
grid_up 1
wait $writer || fail "the writer: $(cat "$T/through.out")"
expect_ok datatool read /through "$size" 5 seq

# -- the only node is away: an error in time, and the file is back with it
grid_kill fsd1
begin=$SECONDS
expect_fail timeout 30 "$TOOLS/datatool" read /synced "$size" 1 seq
took=$((SECONDS - begin))
assert_contains "$output" "No route to host"
if [ "$took" -lt 5 ] || [ $took -gt 15 ]; then fail "the error came after $took s"; fi
grid_up 1
expect_ok datatool read /synced "$size" 1 random

# -- closing what was only read needs nobody
background held "$TOOLS/datatool" hold /synced "$size" 1
wait_for has_line "$T/held.out" read
grid_kill fsd1
grid_kill metad
close_input
wait_for has_line "$T/held.out" closed
took=$(awk '/^closed/ { print $2 }' "$T/held.out")
echo "closed without anybody after $took ms"
[ "$took" -le 1000 ] || fail "the close took $took ms"
grid_up 1
background_ok held
