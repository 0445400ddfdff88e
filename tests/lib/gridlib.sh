# shellcheck shell=bash
# A whole grid for a test: testlib.sh, and `gfs up` in a scratch directory. Source this instead.
# shellcheck source=../lib/testlib.sh
. "$(dirname "${BASH_SOURCE[0]}")/testlib.sh"

G=$T/grid
# What gfs up starts is nobody's child: it must be stopped in each case.
grid_cleanup()
{
	local status=$? log
	trap - EXIT ERR
	set +e
	exec 7>&- 8>&- 9>&-
	for log in "$G"/log/*.log; do cp "$log" "$T/" 2>/dev/null; done
	grid_continue
	gfs down --dir "$G" --force --timeout 3s >/dev/null 2>&1
	(exit $status)
	testlib_cleanup
}
trap grid_cleanup EXIT
unset GFS_GRID GFS_CONFIG GFS_KEY GFS_HOST
export HOME=$T/home
mkdir "$HOME"

# grid_up N [OPTION...]: a grid with N storage nodes, or what is missing of it.
grid_up()
{
	local count=$1
	shift
	expect_ok gfs up --dir "$G" --fsd "$count" "$@"
	. "$G/env.sh"
}
grid_pid() { cat "$G/run/$1.pid"; }
# grid_kill NAME: at once, and it is gone when this returns.
grid_kill()
{
	local pid
	pid=$(grid_pid "$1")
	kill -KILL "$pid"
	wait_for pid_gone "$pid"
}
# One that has ended may wait for its parent, whoever that is here.
pid_gone() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:[[:space:]]*Z' "/proc/$1/status"; }
stopped_pids=()
grid_stop()
{
	stopped_pids+=("$(grid_pid "$1")")
	kill -STOP "$(grid_pid "$1")"
}
grid_continue()
{
	local pid
	for pid in "${stopped_pids[@]}"; do kill -CONT "$pid" 2>/dev/null; done
	stopped_pids=()
}
# Not for the background: there it must be "$TOOLS/datatool", whose process can be stopped.
datatool() { "$TOOLS/datatool" "$@"; }
# where PATH FIELD: of each copy, a line each ("node", "host", "current" …).
where()
{
	gfs where --json "$1" | python3 -c 'import json, sys
found = json.load(sys.stdin)
files = found if isinstance(found, list) else [found]
for copy in files[0]["copies"]:
    print(str(copy[sys.argv[1]]).lower())' "$2"
}
# current_copies PATH: how many count.
current_copies() { where "$1" current | grep -c true || true; }
has_copies() { [ "$(current_copies "$1")" -eq "$2" ]; }
# object_of NODE: the data file of the only object there.
object_of() { find "$G/$1/spool/objects" -type f ! -name '*.sum' ! -name '*.new' | head -1; }
# flip FILE OFFSET: changes one bit there.
flip()
{
	python3 -c 'import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(int(sys.argv[2])); b = f.read(1)
    f.seek(int(sys.argv[2])); f.write(bytes([b[0] ^ 4]))' "$1" "$2"
}
# background NAME COMMAND...: runs with a pipe as its input, which close_input ends; its output goes
# to $T/NAME.out. One at a time.
background()
{
	local name=$1
	shift
	mkfifo "$T/$name.in"
	"$@" <"$T/$name.in" >"$T/$name.out" 2>"$T/$name.err" &
	background_pid=$!
	exec 7>"$T/$name.in"
}
close_input() { exec 7>&-; }
# background_ok NAME: it must end well.
background_ok()
{
	wait "$background_pid" || fail "$1 failed: $(cat "$T/$1.err")"
}
