# shellcheck shell=bash
# Verbs for tests/integ/*.sh. A script starts with
#
#	#!/bin/bash
#	# One sentence: the behaviour this file tests.
#	. "$(dirname "$0")/../lib/testlib.sh"
#
# and then has: $TOP (source tree), $BUILD (absolute), $T (its own empty directory, removed at
# the end), PATH with $BUILD/bin first, and the functions below. A script passes by reaching its
# end; any failing command ends it. Exit 77 (verb: skip) means "cannot run here".
set -euo pipefail

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=$(cd "$TOP" && cd "${BUILD:-build}" && pwd)
PATH=$BUILD/bin:$PATH
TOOLS=$BUILD/tests/tools
export TOP BUILD PATH TOOLS
SANITIZE=${SANITIZE:-}
# LeakSanitizer attaches to its own process, which a daemon that guards its keys forbids.
[ -z "$SANITIZE" ] || export GX_COREDUMP=1

# Seconds to wait for things that take milliseconds; only a hang ever uses them up.
if [ -n "$SANITIZE" ]; then PATIENCE_SEC=60; else PATIENCE_SEC=15; fi

if [ -n "${TEST_SCRATCH:-}" ]; then
	T=$TEST_SCRATCH
else
	T=$(mktemp -d "${TMPDIR:-/tmp}/gx-XXXXXX")
fi

declare -A daemon_pids=() # label -> pid, only what start_daemon started and nobody stopped

testlib_cleanup()
{
	local status=$? label
	trap - EXIT
	set +e
	for label in "${!daemon_pids[@]}"; do
		kill -KILL "${daemon_pids[$label]}" 2>/dev/null
		wait "${daemon_pids[$label]}" 2>/dev/null
	done
	if [ $status -ne 0 ] && [ $status -ne 77 ]; then
		for log in "$T"/*.log; do
			[ -s "$log" ] || continue
			echo "--- ${log##*/} (last lines)"
			tail -n 40 "$log"
		done
	fi
	[ -n "${TEST_SCRATCH:-}" ] || [ "${KEEP_SCRATCH:-}" = 1 ] || rm -rf "$T"
	exit $status
}
trap testlib_cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'echo "${BASH_SOURCE[0]##*/}:$LINENO: failed: $BASH_COMMAND" >&2' ERR

# fail MESSAGE...: ends the test, naming the line of the script that asked.
fail()
{
	local depth=1
	while [ $((depth + 1)) -lt ${#BASH_SOURCE[@]} ] &&
		[[ ${BASH_SOURCE[$depth]} == */testlib.sh ]]; do
		depth=$((depth + 1))
	done
	echo "${BASH_SOURCE[$depth]##*/}:${BASH_LINENO[$((depth - 1))]}: $*" >&2
	exit 1
}

# skip WHY...: this machine cannot run the test.
skip()
{
	echo "$*"
	exit 77
}

# start_daemon [-n LABEL] PROGRAM ARGS...: in the foreground mode of the daemon, as our child.
# Returns when it says READY. Output goes to $T/LABEL.log. LABEL defaults to PROGRAM.
start_daemon()
{
	local label='' program fifo line='' pid
	if [ "$1" = -n ]; then
		label=$2
		shift 2
	fi
	program=$1
	shift
	label=${label:-$program}
	[ -z "${daemon_pids[$label]:-}" ] || fail "daemon $label is already running"
	fifo=$T/$label.ready
	rm -f "$fifo"
	mkfifo "$fifo"
	"$BUILD/bin/$program" -f --ready-fd 9 "$@" 9>"$fifo" >>"$T/$label.log" 2>&1 </dev/null &
	pid=$!
	daemon_pids[$label]=$pid
	# A daemon that dies closes the fifo, which ends the read at once.
	read -r -t "$PATIENCE_SEC" line <"$fifo" || true
	rm -f "$fifo"
	if [ "$line" != READY ]; then
		# Out of the table first: the exit trap must not wait for it again.
		unset "daemon_pids[$label]"
		kill -KILL "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
		cat "$T/$label.log" >&2
		fail "daemon $label did not get ready"
	fi
}

daemon_pid() { echo "${daemon_pids[$1]:?no daemon $1}"; }

# reap_daemon LABEL: waits for its end, sets daemon_status. A hang is killed (status 137).
reap_daemon()
{
	local pid=${daemon_pids[$1]:?no daemon $1} nap first=''
	# The shell waits for the daemon or a plain sleep, whichever ends first: a subshell with a trap
	# would lose a signal that comes just before its own wait.
	sleep "$PATIENCE_SEC" >/dev/null 2>&1 &
	nap=$!
	daemon_status=0
	wait -n -p first "$pid" "$nap" 2>/dev/null || daemon_status=$?
	if [ "$first" = "$nap" ]; then
		kill -KILL "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || daemon_status=$?
	fi
	unset "daemon_pids[$1]"
	kill "$nap" 2>/dev/null || true
	wait "$nap" 2>/dev/null || true
}

# stop_daemon LABEL: SIGTERM; it must end by itself with status 0 (a sanitizer report is not 0).
stop_daemon()
{
	kill -TERM "$(daemon_pid "$1")"
	reap_daemon "$1"
	[ "$daemon_status" -eq 0 ] || fail "daemon $1 ended with status $daemon_status"
}

# kill_daemon LABEL: SIGKILL, as a crash would.
kill_daemon()
{
	kill -KILL "$(daemon_pid "$1")"
	reap_daemon "$1"
}

# expect_ok COMMAND...: output lands in $output (stdout and stderr).
expect_ok()
{
	local status=0
	output=$("$@" 2>&1) || status=$?
	[ $status -eq 0 ] || fail "expected success, got status $status: $*"$'\n'"$output"
}

# expect_fail [-s STATUS] COMMAND...: default is any status from 1 to 98, so that a crash,
# a sanitizer report (99) and a missing program (127) never pass as the expected failure.
expect_fail()
{
	local want='' status=0
	if [ "$1" = -s ]; then
		want=$2
		shift 2
	fi
	output=$("$@" 2>&1) || status=$?
	if [ -n "$want" ]; then
		[ $status -eq "$want" ] ||
			fail "expected status $want, got $status: $*"$'\n'"$output"
	elif [ $status -lt 1 ] || [ $status -gt 98 ]; then
		fail "expected a failure, got status $status: $*"$'\n'"$output"
	fi
}

# assert_contains TEXT PART [WHAT]
assert_contains()
{
	case $1 in
	*"$2"*) ;;
	*) fail "${3:-text} lacks '$2':"$'\n'"$1" ;;
	esac
}

# assert_lacks TEXT PART [WHAT]
assert_lacks()
{
	case $1 in
	*"$2"*) fail "${3:-text} must not contain '$2':"$'\n'"$1" ;;
	esac
}

# assert_equals GOT WANTED [WHAT]
assert_equals()
{
	[ "$1" = "$2" ] || fail "${3:-value}: got '$1', wanted '$2'"
}

# wait_for COMMAND...: polls until it succeeds. Only where there is no event to wait on.
wait_for()
{
	local deadline=$((SECONDS + PATIENCE_SEC))
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $deadline ] || fail "still not true after $PATIENCE_SEC s: $*"
		sleep 0.05
	done
}

# has_line FILE PART...: one line of the file contains all parts.
has_line()
{
	local file=$1 line part
	shift
	while IFS= read -r line; do
		for part in "$@"; do
			[[ $line == *"$part"* ]] || continue 2
		done
		return 0
	done <"$file"
	return 1
}

# wait_log LABEL PART...: the daemon's log gets such a line.
wait_log()
{
	local label=$1
	shift
	wait_for has_line "$T/$label.log" "$@"
}

# log_mark LABEL: forget the log so far, so that only later lines count. (The daemon appends.)
log_mark() { : >"$T/$1.log"; }

# counter ADDRESS NAME: one of the daemon's counters, asked as $T/admin.key.
counter()
{
	"$TOOLS/wirepeer" stats "$1" "$T/admin.key" | awk -v name="$2" '$1 == name { print $2 }'
}

# port_of ADDRESS
port_of() { echo "${1##*:}"; }

# relay PORT [FLIP]: a man in the middle (tests/tools/proxy.c) in front of that port, who changes
# the FLIP-th byte of each client. Sets relay_port; ends when descriptor 8 is closed.
relay()
{
	mkfifo "$T/relay.in" "$T/relay.out"
	"$TOOLS/proxy" "$@" <"$T/relay.in" >"$T/relay.out" &
	exec 8>"$T/relay.in"
	# shellcheck disable=SC2034 # for the caller
	read -r -t "$PATIENCE_SEC" relay_port <"$T/relay.out" || fail "the relay did not start"
	rm "$T/relay.in" "$T/relay.out"
}

# -- the echo daemon ------------------------------------------------------------------
# make_keys: $T/alice.key (user:alice), $T/echod.key (host:echod), $T/admin.key (user:admin, who
# may ask for counters), and all of them in $T/keys.
make_keys()
{
	gfs key new user:alice -o "$T/alice.key"
	gfs key new host:echod -o "$T/echod.key"
	gfs key new user:admin --admin -o "$T/admin.key"
	gfs key add "$T/keys" "$T/alice.key" "$T/echod.key" "$T/admin.key"
}

# start_echod LISTEN [ARGS...]: LISTEN is a list of addresses (port 0: any free port).
# Its real addresses are then in the array echod_addresses, in the order of LISTEN.
start_echod()
{
	local listen=$1
	shift
	start_daemon gfs-echod --set "echo.listen=$listen" --set "echo.address_file=$T/echod.addr" \
		--set "echo.keys=$T/keys" --set echo.name=echod "$@"
	mapfile -t echod_addresses <"$T/echod.addr"
	[ ${#echod_addresses[@]} -gt 0 ] || fail "gfs-echod wrote no address"
}
