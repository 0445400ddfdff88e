#!/bin/bash
# metad with many names: memory, look-ups, a start after a kill, and a huge directory listed and
# emptied beside another client. SCALE_FILES and SCALE_DIR say how many; SCALE_JUDGE=1 (what
# tests/soak/meta_scale.sh sets) also holds the times against what we want.
. "$(dirname "$0")/../lib/testlib.sh"

files=${SCALE_FILES:-100000}
huge=${SCALE_DIR:-20000}
samples=${SCALE_SAMPLES:-5000}
few=10000
[ -z "$SANITIZE" ] || { files=$((files / 10)) huge=$((huge / 10)) few=2000; }
per_dir=1000
threads=3

gfs key new user:root --admin -o "$T/root.key"
gfs key add "$T/keys" "$T/root.key"
mkdir "$T/md"
printf '[gfs]\nmetad = unix:%s\nkey_file = %s\n' "$T/metad.sock" "$T/root.key" >"$T/gfs.conf"
chmod 600 "$T/gfs.conf"
export GFS_CONFIG=$T/gfs.conf

start_metad()
{
	start_daemon -n metad gfs-metad --set "metad.listen=unix:$T/metad.sock" \
		--set "metad.keys=$T/keys" --set "metad.dir=$T/md"
}
scale() { "$TOOLS/metascale" "$1" "$T/gfs.conf" "${@:2}"; }
# look DIR FILES: p50 and p99 of a look-up, ns. On one CPU, as in bench/meta: waking another one takes
# some machines ten times as long as a look-up, and is what would be measured.
cpu=$(taskset -cp $$ | sed 's/.*[^0-9]//')
all=$(taskset -p $$ | sed 's/.* //')
look()
{
	taskset -cap "$cpu" "$(daemon_pid metad)" >"$T/pinned"
	taskset -c "$cpu" "$TOOLS/metascale" look "$T/gfs.conf" "$1" "$2" $per_dir "$samples"
	taskset -ap "$all" "$(daemon_pid metad)" >"$T/pinned"
}
# status NAME: a number of metad's own.
status()
{
	gfs status --json | python3 -c 'import json, sys
print(int(json.load(sys.stdin)[sys.argv[1]]))' "$1"
}
# memory KIND: VmRSS or RssAnon, in KiB.
memory() { awk -v kind="$1:" '$1 == kind { print $2 }' "/proc/$(daemon_pid metad)/status"; }
# All that is resident: metad's own, and LevelDB's tables, which are mapped (page cache; after
# look-ups everywhere that is all of the database, see docs/PERFORMANCE.md).
check_memory()
{
	echo "memory: $(memory VmRSS) KiB, of which $(memory RssAnon) KiB are not mapped tables"
	[ -n "$SANITIZE" ] || [ "$(memory VmRSS)" -le 1048576 ] ||
		fail "metad takes $(memory VmRSS) KiB"
}
now_ms() { echo $(($(date +%s%N) / 1000000)); }
# judge WHAT NUMBER LIMIT
judge()
{
	echo "$1: $2, wanted at most $3"
	[ "${SCALE_JUDGE:-}" != 1 ] || [ "$2" -le "$3" ] || late+=("$1: $2, wanted at most $3")
}
late=()

# -- few names, then many: what a look-up costs
start_metad
scale fill few $few $per_dir 1
read -r few_p50 few_p99 < <(look few $few)
begin=$(now_ms)
scale fill many "$files" $per_dir $threads
echo "$files files made in $(($(now_ms) - begin)) ms"
inodes=$((1 + 2 + few + few / per_dir + files + files / per_dir))
assert_equals "$(status inodes)" $inodes "inodes"
read -r many_p50 many_p99 < <(look many "$files")
echo "look-up among $few: p50 $few_p50 ns, p99 $few_p99 ns; $files: $many_p50 ns, $many_p99 ns"
judge "look-up among many, percent of among few" $((many_p50 * 100 / few_p50)) 200
check_memory

# -- a kill at this size: everything is there, and soon
kill_daemon metad
begin=$(now_ms)
start_metad
judge "start after a kill, ms" $(($(now_ms) - begin)) 10000
"$TOOLS/hiccup" >"$T/hiccup" &
hiccup=$!
assert_equals "$(status inodes)" $inodes "inodes after a kill"
scale look many "$files" $per_dir "$samples" >/dev/null

# -- a huge directory
scale fill huge "$huge" "$huge" $threads
turn_before=$(status longest_turn_us)
read -r listed removed p99 max < <(scale empty huge)
assert_equals "$listed" "$huge" "entries listed"
assert_equals "$removed" "$huge" "entries removed"
assert_equals "$(status inodes)" $inodes "inodes without the huge directory"
expect_fail gfs stat /huge
judge "p99 of another client, us" $((p99 / 1000)) 50000
echo "its slowest call: $((max / 1000)) us"
echo "longest turn by the clock, us: $(status longest_turn_us) (before: $turn_before)"
# What the machine itself takes away for a moment counts as work: a process that does nothing says how much.
kill $hiccup
wait $hiccup
judge "longest turn on the CPU, us" "$(status longest_work_us)" $((10000 + $(<"$T/hiccup")))
check_memory

stop_daemon metad
[ ${#late[@]} -eq 0 ] || fail "$(printf '%s\n' "${late[@]}")"
