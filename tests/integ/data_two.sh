#!/bin/bash
# Two clients on one file: leases are recalled, appends of both are whole and in order, sizes are
# seen soon, a reader beside a truncating writer sees old or new but nothing else, and a writer that
# was stopped beyond its lease changes nothing that is served (rules B2, B4, B5, N12).
#
# DATA_RECORDS: appended by each client; DATA_ROUNDS: of cutting (tests/soak/data_two.sh: more).
. "$(dirname "$0")/../lib/gridlib.sh"

count=${DATA_RECORDS:-400}
rounds=${DATA_ROUNDS:-40}
[ -z "$SANITIZE" ] || { count=60 rounds=5; }
grid_up 1

# -- append from four processes, from an empty file on: out of metad on the way
pids=()
for id in 1 2 3 4; do
	"$TOOLS/datatool" append /log $id "$count" >"$T/append.$id" 2>&1 &
	pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || fail "append: $(cat "$T"/append.*)"; done
expect_ok datatool records /log
assert_equals "$output" "$(for id in 1 2 3 4; do echo "$id $count"; done)" "records"

# -- the size is seen while the writer has the file open and holds writes back
size=$((3 * 1024 * 1024))
background open "$TOOLS/datatool" write /open "$size" 5 wait
wait_for has_line "$T/open.out" written
expect_ok datatool size /open "$size"
echo "the size was seen after $output ms"
limit=100
[ -z "$SANITIZE" ] || limit=1000
[ "$output" -le $limit ] || fail "the size was seen after $output ms"
# ... and so are the bytes: opening recalls.
expect_ok datatool read /open "$size" 5 seq
close_input
background_ok open
expect_ok datatool read /open "$size" 5 random

# -- a reader beside a writer that rewrites the file
"$TOOLS/datatool" slow /open "$size" 5 2 >"$T/again.out" 2>&1 &
writer=$!
for i in 1 2 3 4 5; do
	# Truncated first: a piece may be missing, but what is there is right.
	expect_ok gfs get /open "$T/part.$i"
	part=$(stat -c %s "$T/part.$i")
	[ "$part" -le "$size" ] || fail "$part bytes"
done
wait $writer || fail "the writer: $(cat "$T/again.out")"
expect_ok datatool read /open "$size" 5 seq
for i in 1 2 3 4 5; do
	cmp -n "$(stat -c %s "$T/part.$i")" "$T/part.$i" <(gfs cat /open) || fail "a part is wrong"
done

# -- truncate against read: old content, or zeros where it was cut and lengthened, and nothing else
for host in host1 elsewhere; do
	expect_ok datatool write /cut "$size" 8
	rm -f "$T/watch.in"
	export GFS_HOST=$host
	background watch "$TOOLS/datatool" watch /cut "$size" 8
	unset GFS_HOST
	wait_for has_line "$T/watch.out" watching
	expect_ok datatool cut /cut "$size" 8 "$rounds"
	close_input
	background_ok watch
	read -r reads short zeros < <(tail -1 "$T/watch.out")
	echo "reads on $host: $reads, with an early end: $short, blocks with zeros: $zeros"
	[ "$short" -gt 0 ] || fail "the reader saw no cut in $reads reads"
	[ "$reads" -gt "$short" ] || fail "the reader saw no whole piece in $reads reads"
	expect_ok datatool read /cut "$size" 8 seq
done

# -- a writer stopped beyond its lease, and continued: its late writes change nothing
# look NAME: what is served now, in $T/NAME.
look() { expect_ok gfs get -f /fenced "$T/$1"; }
# has_run NAME OFFSET BYTE COUNT
has_run()
{
	cmp -s <(tail -c +$(($2 + 1)) "$T/$1" | head -c "$4") \
		<(head -c "$4" /dev/zero | tr '\0' "\\$(printf %o "$3")")
}
# late_writer NAME COUNT HUNG [sync]: writes before it is stopped and after it was continued;
# HUNG: the node is silent meanwhile, so that nothing has been answered.
late_writer()
{
	local name=$1 count=$2 hung=$3 told
	shift 3
	expect_ok datatool write /fenced "$size" 6 sync
	[ "$hung" != hung ] || grid_stop fsd1
	background "$name" "$TOOLS/datatool" late /fenced 4096 65 "$count" "$@"
	wait_for has_line "$T/$name.out" held
	kill -STOP "$background_pid"
	grid_continue
	# Another client writes elsewhere: the lease is lost to it.
	expect_ok timeout 30 "$TOOLS/datatool" late /fenced $((size - 8192)) 88 4096 </dev/null
	assert_equals "$(tail -1 <<<"$output")" "0 0 0" "the other writer"
	look before
	has_run before $((size - 8192)) 88 4096 || fail "the other writer's bytes are not there"
	kill -CONT "$background_pid"
	close_input
	background_ok "$name"
	look after
	told=$(tail -1 "$T/$name.out")
	echo "$name: the late writer was told: $told"
	if [ "$told" = "0 0 0" ]; then
		# Then all of it is there, beside what the other one wrote.
		has_run after 4096 65 "$count" || fail "what it wrote before is not there, silently"
		has_run after $((4096 + count)) 66 "$count" || fail "its late bytes are not there, silently"
		has_run after $((size - 8192)) 88 4096 || fail "it undid what another has written"
	else
		cmp "$T/before" "$T/after" || fail "its late writes changed what is served: $told"
	fi
}
late_writer held 4096 well
late_writer synced 4096 well sync
late_writer large $((1280 * 1024)) well
late_writer hung 4096 hung
