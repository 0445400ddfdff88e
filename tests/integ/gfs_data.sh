#!/bin/bash
# The commands of gfs with large files: put, get, cp and cat of any size, with holes, cut and gone on
# with; du, df, where and rep; and what they say when there is no storage.
#
# DATA_BYTES: size of the large file (tests/soak/gfs_data.sh: 1 GiB).
. "$(dirname "$0")/../lib/gridlib.sh"

mib=$((1024 * 1024))
size=${DATA_BYTES:-$((24 * mib + 12345))}
[ -z "$SANITIZE" ] || size=$((6 * mib + 12345))
cd "$T"
# json EXPRESSION: of the output, as x.
json() { python3 -c "import json, sys; x = json.loads(sys.argv[1]); print($1)" "$output"; }
no_leftovers()
{
	assert_equals "$(gfs find / -name '.gfs-tmp-*')" "" "temporary files in the grid"
	assert_equals "$(find "$T" -path "$G" -prune -o -name '.gfs-tmp-*' -print)" "" \
		"temporary local files"
}

# -- without storage nodes there is no room, said in time and in one line
grid_up 0
head -c 100000 /dev/urandom >some
expect_fail -s 1 gfs put some /some
assert_equals "$output" "gfs put: /some: no storage node that has the file, or could, is up" "without storage"
expect_ok gfs df
assert_contains "$output" "There are no storage nodes"
no_leftovers
grid_up 2
for command in df du rep where; do
	expect_ok gfs $command --help
	assert_contains "$output" "Usage: gfs $command" "help of $command"
	expect_fail -s 2 gfs $command --no-such-option
	assert_contains "$output" "Try: gfs $command --help"
done
expect_fail -s 2 gfs where
expect_fail -s 2 gfs rep /
expect_fail -s 2 gfs rep -n 0 /
expect_fail -s 2 gfs rep -n 65 /
expect_fail -s 2 gfs rep -n 2
expect_fail -s 2 gfs df /
expect_fail -s 2 gfs put --progress=sometimes some /some

# -- there and back, also through pipes
head -c "$size" /dev/urandom >big
expect_ok gfs mkdir /d
for host in host1 elsewhere; do
	export GFS_HOST=$host
	expect_ok gfs put big /d/big
	expect_ok gfs get /d/big back
	cmp big back || fail "put and get on $host"
	gfs cat /d/big | cmp - big || fail "cat on $host"
	gfs get /d/big - | cmp - big || fail "get - on $host"
	gfs put - /d/stream <big
	expect_ok gfs cp /d/stream /d/copy
	gfs cat /d/copy | cmp - big || fail "cp on $host"
	rm back
done
unset GFS_HOST
expect_ok gfs rm /d/stream /d/copy
no_leftovers

# -- holes stay holes: at the beginning, in the middle, at the end
truncate -s $((64 * mib)) holes
dd if=big of=holes bs=1M count=2 seek=7 conv=notrunc status=none
dd if=big of=holes bs=1M count=1 seek=40 conv=notrunc status=none
truncate -s $((32 * mib)) nothing
for file in holes nothing; do
	expect_ok gfs put $file /d/$file
	expect_ok gfs cp /d/$file /d/$file.copy
	expect_ok gfs get /d/$file.copy $file.back
	cmp $file $file.back || fail "$file: other bytes"
	[ "$(du -k $file.back | cut -f 1)" -le 4096 ] || fail "$file: the holes are filled"
	gfs cat /d/$file | cmp - $file || fail "cat of $file"
done
spool_kib() { du -sk "$G/fsd1/spool" "$G/fsd2/spool" | awk '{ sum += $1 } END { print sum }'; }
[ "$(spool_kib)" -le $((size / 1024 + 12 * 1024)) ] || fail "holes take room in the spools"
expect_ok gfs rm /d/holes /d/holes.copy /d/nothing /d/nothing.copy

# -- a line about the transfer, if asked for
expect_ok gfs put --progress=always -f big /d/big
assert_contains "$output" "100%"
expect_ok gfs get --progress=never /d/big back
assert_equals "$output" ""
rm back
# On a terminal without being asked, if it takes more than a second; the line is gone at the end.
cat >on_terminal.py <<'END'
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
try:
    while data := os.read(fd, 4096):
        os.write(1, data)
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END
# through a pipe that lasts two seconds, in pieces
slowly() { for _ in 1 2 3 4 5; do head -c 100000 /dev/zero; sleep 0.4; done; }
python3 on_terminal.py bash -c "$(declare -f slowly); slowly | gfs put - /d/slow" >terminal
python3 - terminal <<'END' || fail "no line with a rate on a terminal: $(cat -v terminal)"
import re, sys
text = open(sys.argv[1], "rb").read().decode()
sys.exit(not re.search(r"\r\S.*  \d+K  \d+K/s", text) or not text.endswith("\r\x1b[K"))
END
slowly | gfs put - /d/slow 2>terminal
assert_equals "$(<terminal)" "" "the line where there is no terminal"
expect_ok gfs rm /d/slow

# -- cut and gone on with
# part_of DIR: of a copy that has begun.
part_of() { find "$1" -maxdepth 1 -name '.gfs-tmp-*' -size +16M | head -1; }
# Long enough to be cut in the middle, and with a hole.
truncate -s $((160 * mib)) long
dd if=big of=long bs=1M count=24 conv=notrunc status=none
python3 - long <<'END'
import sys
with open(sys.argv[1], "r+b") as f:
    block = bytes(range(256)) * 4096
    for i in range(48, 160):
        f.seek(i << 20); f.write(block)
END
# A source of known size that takes its time: the nodes stand still in the middle, with more
# to come than is held back.
grid_stop fsd1
grid_stop fsd2
(sleep 1.5; for pid in "${stopped_pids[@]}"; do kill -CONT "$pid"; done) &
python3 on_terminal.py gfs put long /d/long >terminal
wait $!
grid_continue
python3 - terminal <<'END' || fail "no line with a rate and the time left: $(cat -v terminal)"
import re, sys
text = open(sys.argv[1], "rb").read().decode()
sys.exit(not re.search(r"long +\d+%  .* of .*  .*/s  (\d+:\d\d|-:--) left", text))
END
expect_ok gfs rm /d/long
# cut HAS SIGNAL COMMAND...: sends the signal when HAS is true. A command that is faster is tried
# again.
cut()
{
	local has=$1 signal=$2 pid try
	shift 2
	for try in 1 2 3 4 5 6 7 8; do
		"$@" >"$T/cut.out" 2>&1 &
		pid=$!
		until $has || ! kill -0 $pid 2>/dev/null; do :; done
		kill -"$signal" $pid 2>/dev/null || true
		wait $pid 2>/dev/null || { $has || fail "$* ended: $(cat "$T/cut.out")"; return 0; }
	done
	fail "$* was never cut, in $try tries"
}
# went_on: the first line that was shown is not one of a beginning: a tenth was there.
went_on()
{
	local first
	first=$(grep -o '[0-9]*%' <<<"$output" | head -1)
	[ "${first%\%}" -ge 10 ] || fail "it began anew, at $first"
	assert_contains "$output" "100%"
}
put_has() { [ "$(gfs find /d -name '.gfs-tmp-*' -size +16M 2>/dev/null)" != "" ]; }
get_has() { [ "$(part_of "$T/in")" != "" ]; }
mkdir in
for signal in TERM KILL; do
	cut put_has $signal gfs put -f long /d/long
	[ $signal != TERM ] || assert_contains "$(<"$T/cut.out")" "--resume"
	expect_ok gfs put --resume --progress=always -f long /d/long
	went_on
	gfs cat /d/long | cmp - long || fail "put went on wrongly after $signal"
	no_leftovers
	rm -f in/long
	cut get_has $signal gfs get -f /d/long in/long
	expect_ok gfs get --resume --progress=always -f /d/long in/long
	went_on
	cmp long in/long || fail "get went on wrongly after $signal"
	# A client that was killed may have had it open; when metad notices, the file counts as changed.
	[ $signal = TERM ] || rm -f in/.gfs-tmp-*
	no_leftovers
done
# What is there may be wrong at its end, or belong to a source that has changed since.
cut get_has KILL gfs get -f /d/long in/other
part=$(part_of in)
truncate -s -5000 "$part"
head -c 5000 /dev/zero >>"$part"
expect_ok gfs get --resume -f /d/long in/other
cmp long in/other || fail "a wrong end was taken"
rm -f in/other
cut get_has KILL gfs get -f /d/long in/other
expect_ok gfs put -f big /d/long
expect_ok gfs get --resume -f /d/long in/other
cmp big in/other || fail "the part of another content was taken"
rm -f in/.gfs-tmp-*
expect_ok gfs rm /d/long
no_leftovers

# -- du: sizes once for each inode
expect_ok gfs mkdir -p /sum/a/b
expect_ok gfs put some /sum/a/b/one
expect_ok gfs ln /sum/a/b/one /sum/two
gfs put - /sum/a/small <<<four
expect_ok gfs du -b /sum
assert_equals "$output" "100000  /sum/a/b
100005  /sum/a
100005  /sum" "du"
expect_ok gfs du -abc -d 1 /sum/a /d
assert_contains "$output" "5       /sum/a/small"
assert_contains "$output" "$((100005 + size)) total"
assert_lacks "$output" "one"
expect_ok gfs du -s --json /sum /d
assert_equals "$(json '[(f["path"], f["bytes"], f["files"]) for f in x]')" \
	"[('/sum', 100005, 2), ('/d', $size, 1)]" "du as JSON"
expect_fail -s 1 gfs du /nowhere

# -- where and rep: what a directory says counts for what is made in it
expect_ok gfs where /sum/a/small
assert_equals "$output" "/sum/a/small: in metad"
expect_ok gfs where --json /sum/a/small /d/big
assert_equals "$(json '[(f["path"], f["inline"], f["wanted"], len(f["copies"])) for f in x]')" \
	"[('/sum/a/small', True, 1, 0), ('/d/big', False, 1, 1)]" "where"
expect_ok gfs rep -n 2 /d
expect_ok gfs put big /d/twice
expect_ok gfs rep --wait /d/twice
assert_equals "$(where /d/twice host | sort | tr '\n' ' ')" "host1 host2 " "hosts of two copies"
has_copies /d/big 1 || fail "a file that was there got copies by its directory"
expect_ok gfs rep -r -n 2 --wait -W 60s -v /d
assert_contains "$output" "/d/big: 2"
has_copies /d/big 2 || fail "no second copy"
expect_ok gfs where -r /d
assert_equals "$(grep -c ': current' <<<"$output")" 4 "copies below /d"
# More than there are hosts: not possible, and waiting for it ends in time.
expect_ok gfs rep -n 3 /d/big
expect_fail -s 1 gfs rep --wait -W 300ms /d/big
assert_contains "$output" "the copies are not there yet"
expect_ok gfs rep -n 2 --wait /d/big
expect_fail -s 1 gfs where /d
assert_contains "$output" "is a directory (see -r)"
expect_fail -s 1 gfs rep -n 2 /nowhere
expect_ok gfs ln -s big /d/link
expect_ok gfs where /d/link
assert_contains "$output" "fsd1 on host1: current"

# -- df: each node and all; a node that is down is told and does not count
expect_ok gfs df --json
assert_equals "$(json '[(n["name"], n["host"], n["up"]) for n in x["nodes"]]')" \
	"[('fsd1', 'host1', True), ('fsd2', 'host2', True)]" "nodes"
assert_equals "$(json 'x["free_bytes"] == sum(n["free_bytes"] for n in x["nodes"]) > 0')" True "free"
assert_equals "$(json 'x["capacity_bytes"] == x["used_bytes"] + x["free_bytes"]')" True "sizes"
expect_ok gfs df -b
assert_equals "$(awk '{ print $1 }' <<<"$output" | tr '\n' ' ')" "NODE fsd1 fsd2 total " "df"
grid_kill fsd2
down() { gfs df | grep -q '^fsd2 .* DOWN '; }
wait_for down
expect_ok gfs df
assert_contains "$output" "1 of 2 nodes down"
expect_fail -s 1 gfs status
assert_contains "$output" "1 of 2 nodes down"
expect_ok gfs get /d/twice back
cmp big back || fail "the other copy"
grid_up 2
expect_ok gfs status
