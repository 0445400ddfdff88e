#!/bin/bash
# The file commands of gfs (ls stat mkdir rm mv ln touch chmod chown find cat put get cp) do on a
# real grid what their cousins do on a disk, say what went wrong, and leave nothing half done.
. "$(dirname "$0")/../lib/testlib.sh"

unset GFS_GRID GFS_CONFIG GFS_KEY
export HOME=$T/home LC_ALL=C TZ=UTC
mkdir "$HOME"
grid=$T/grid

# What gfs up starts is nobody's child: it must be stopped in each case.
stop_grid()
{
	local status=$?
	trap - EXIT ERR
	set +e
	cp "$grid/log/metad.log" "$T/metad.log" 2>/dev/null
	gfs down --dir "$grid" --force --timeout 2s >/dev/null 2>&1
	(exit $status)
	testlib_cleanup
}
trap stop_grid EXIT

expect_ok gfs up --dir "$grid"
# shellcheck disable=SC1091 # made by gfs up
. "$grid/env.sh"
cd "$T"
umask 022

# expect_output TEXT COMMAND...: works and prints exactly that.
expect_output()
{
	local want=$1
	shift
	expect_ok "$@"
	assert_equals "$output" "$want" "$*"
}
# put TEXT PATH
put() { printf '%s' "$1" | gfs put - "$2"; }
# field FILE EXPRESSION: of gfs stat --json
field() { gfs stat --json "$1" | python3 -c "import json, sys; f = json.load(sys.stdin)[0]; print($2)"; }
mode_of() { field "$1" 'f["mode"]'; }
no_leftovers()
{
	assert_equals "$(gfs find / -name '.gfs-tmp-*')" "" "temporary files in the grid"
	assert_equals "$(find "$T" -path "$grid" -prune -o -name '.gfs-tmp-*' -print)" "" \
		"temporary local files"
}

# -- usage: 2 for each command that lacks arguments, --help for all
for command in cat chmod chown cp find get ln ls mkdir mv put rm stat touch; do
	expect_ok gfs $command --help
	assert_contains "$output" "Usage: gfs $command" "help of $command"
	assert_contains "$output" "--config FILE"
	expect_fail -s 2 gfs $command --no-such-option
	assert_contains "$output" "gfs $command: unrecognized option"
	assert_contains "$output" "Try: gfs $command --help"
done
for command in cat chmod chown cp get ln mkdir mv put rm stat touch; do
	expect_fail -s 2 gfs $command
done
expect_fail -s 1 gfs ls --config "$T/absent.conf" /
expect_fail -s 1 gfs -c "$T/absent.conf" ls /
assert_equals "$output" "gfs: --config $T/absent.conf: No such file or directory"
expect_output "" gfs -c "$grid/gfs.conf" ls /
expect_output "" gfs ls

# -- who is not let in is told why: a key that metad does not have, a user that its table lacks
expect_ok gfs key new user:guest -o "$T/guest.key"
printf '[gfs]\nmetad = unix:%s\nkey_file = %s\n' "$grid/run/metad.sock" "$T/guest.key" >guest.conf
expect_fail -s 1 gfs -c guest.conf ls /
assert_equals "$output" \
	"gfs ls: unix:$grid/run/metad.sock: refused by the server: authentication failed"
expect_ok gfs key add "$grid/keys" "$T/guest.key"
kill -HUP "$(<"$grid/run/metad.pid")"
guest_known() { gfs ping --key "$T/guest.key" -q -c 1 "unix:$grid/run/metad.sock"; }
wait_for guest_known
expect_fail -s 1 gfs -c guest.conf ls /
assert_equals "$output" "gfs ls: /: user:guest is not in the grid's table of users"

# -- mkdir
expect_ok gfs mkdir /d
assert_equals "$(mode_of /d)" 0755
expect_fail -s 1 gfs mkdir /d
assert_equals "$output" "gfs mkdir: /d: File exists"
expect_ok gfs mkdir -p gfs:/d /d//e/f
expect_ok gfs mkdir -m u=rwx,go= d/private
assert_equals "$(mode_of /d/private)" 0700
expect_ok gfs mkdir -p -m 0711 /d/g/h
assert_equals "$(mode_of /d/g) $(mode_of /d/g/h)" "0755 0711"
# One that fails does not stop the others.
expect_fail -s 1 gfs mkdir /no/way /d /m1 /m2
assert_equals "$output" "gfs mkdir: /no/way: No such file or directory
gfs mkdir: /d: File exists"
expect_output $'d\nm1\nm2' gfs ls /
expect_fail -s 2 gfs mkdir -m u+q /x

# -- put, cat, get
printf 'hello\n' >local
expect_ok gfs put local /d/hello
expect_output hello gfs cat /d/hello
expect_ok gfs put local /d
expect_ok gfs get /d/local back
cmp local back
expect_output hello gfs get /d/hello -
put 'from a pipe' /d/pipe
expect_output 'from a pipe' gfs cat /d/pipe
expect_output $'hello\nfrom a pipe' gfs cat /d/hello /d/pipe
expect_fail -s 1 gfs cat /d/hello /absent /d /d/pipe
assert_equals "$output" "hello
gfs cat: /absent: No such file or directory
gfs cat: /d: Is a directory
from a pipe"
: >empty
expect_ok gfs put empty /d/empty
assert_equals "$(field /d/empty 'f["size"]')" 0
expect_fail -s 1 gfs put absent local /d/e
assert_equals "$output" "gfs put: absent: No such file or directory"
expect_output hello gfs cat /d/e/local
expect_fail -s 1 gfs put local empty /d/hello
assert_contains "$output" "Not a directory"
expect_fail -s 1 gfs put local /new/
expect_fail -s 1 gfs put d /d/x
if [ -c /dev/full ]; then
	status=0
	gfs cat /d/hello >/dev/full 2>err || status=$?
	assert_equals "$status" 1 "status with a full disk behind standard output"
	assert_contains "$(<err)" "standard output: No space left on device"
fi

# Replacing: the old mode stays, -n leaves it, -f goes where W is missing.
gfs chmod 640 /d/hello
printf 'second\n' >local
expect_ok gfs put local /d/hello
assert_equals "$(gfs cat /d/hello) $(mode_of /d/hello)" "second 0640"
printf 'third\n' >local
expect_ok gfs put -n local /d/hello
expect_output second gfs cat /d/hello
expect_ok gfs get -n /d/hello local
assert_equals "$(<local)" third
gfs mkdir /m2/local
expect_fail -s 1 gfs put local /m2
assert_equals "$output" "gfs put: /m2/local: Is a directory"
# A link to a file stays a link.
gfs ln -s hello /d/link
expect_ok gfs put local /d/link
assert_equals "$(field /d/link 'f["target"]') $(gfs cat /d/hello)" "hello third"
gfs ln -s nowhere /d/dangling
expect_fail -s 1 gfs put local /d/dangling

# -p keeps mode and times, both ways.
printf x >timed
chmod 604 timed
touch -d '2001-02-03 04:05:06.5' timed
expect_ok gfs put -p timed /d/timed
assert_equals "$(mode_of /d/timed) $(field /d/timed 'f["mtime"]')" \
	"0604 2001-02-03T04:05:06.500000Z"
expect_ok gfs get -p /d/timed timed2
assert_equals "$(stat -c '%a %y' timed2)" "$(stat -c '%a %y' timed)"
expect_ok gfs get /d/timed timed3
assert_equals "$(stat -c %a timed3)" 604
[ timed3 -nt timed ] || fail "get without -p kept the time"

# One byte more than metad keeps itself; from a stream, too.
head -c 8192 /dev/urandom >largest
head -c 8193 /dev/urandom >larger
expect_ok gfs put larger largest /d/e
assert_equals "$(field /d/e/largest 'f["size"]')" 8192
assert_equals "$(field /d/e/larger 'f["size"]')" 8193
gfs put - /d/e/stream <larger
gfs cat /d/e/stream | cmp - larger || fail "a stream is not what it was"
gfs get /d/e/larger - | cmp - larger || fail "got something else"
expect_ok gfs rm /d/e/stream /d/e/larger
no_leftovers

# A copy that is ended in the middle leaves nothing either.
mkfifo slow
gfs put - /d/hello <slow 2>err &
pid=$!
exec 7>slow
printf 'the first half' >&7
has_temporary() { [ -n "$(gfs find /d -name '.gfs-tmp-*')" ]; }
wait_for has_temporary
kill -TERM $pid
status=0
wait $pid || status=$?
exec 7>&-
assert_equals "$status" 143 "status of a put that was ended"
expect_output third gfs cat /d/hello
no_leftovers

# -- ls
gfs mkdir /l /l/sub
put 12345 /l/b
put 1 /l/a
put 123 /l/c
put x /l/.hidden
put x /l/sub/deep
gfs ln -s b /l/link
gfs touch -d '2020-01-01' /l/a
gfs touch -d '2022-01-01' /l/b
gfs touch -d '2021-01-01' /l/c
gfs chmod 4751 /l/c
expect_output $'a\nb\nc\nlink\nsub' gfs ls /l
expect_output $'.\n..\n.hidden\na\nb\nc\nlink\nsub' gfs ls -a /l
expect_output $'/l/c\n/l/b\n/l/a' gfs ls -r -1 /l/a /l/b /l/c
expect_output $'/l/b\n/l/c\n/l/a' gfs ls -t /l/a /l/b /l/c
expect_output $'/l/b\n/l/c\n/l/a' gfs ls -S /l/a /l/b /l/c
expect_output $'/l/a\n/l/c\n/l/b' gfs ls -Sr /l/a /l/b /l/c
expect_output /l gfs ls -d /l
expect_output $'/l:\na\nb\nc\nlink\nsub\n\n/l/sub:\ndeep' gfs ls -R /l
expect_output $'/l/a\n\n/l/sub:\ndeep' gfs ls /l/sub /l/a
expect_fail -s 1 gfs ls /x /l/sub
assert_equals "$output" $'gfs ls: /x: No such file or directory\n/l/sub:\ndeep'
me=$(field /l/a 'f["user"]') group=$(field /l/a 'f["group"]')
expect_output "-rwsr-x--x 1 $me $group 3 Jan  1  2021 /l/c" gfs ls -l /l/c
expect_ok gfs ls -l /l
assert_contains "$output" " link -> b"
assert_contains "$output" "drwxr-xr-x 2 $me $group "
expect_ok gfs ls -lh /d/e/largest
assert_contains "$output" " 8.0K "

# -- JSON, with any bytes in a name
name=$'we"ird\\ \n\x01\xff\xc3\xa9'
put odd "/l/sub/$name"
gfs ls --json -R /l >json
python3 - "$name" json <<'PY'
import json, os, sys
name = os.fsencode(sys.argv[1])
files = {os.fsencode(f["path"]): f for f in json.load(open(sys.argv[2]))}
assert sorted(files) == sorted([b"/l/a", b"/l/b", b"/l/c", b"/l/link", b"/l/sub", b"/l/sub/deep",
                                b"/l/sub/" + name]), files.keys()
assert os.fsencode(files[b"/l/sub/" + name]["name"]) == name
assert files[b"/l/link"]["target"] == "b" and files[b"/l/link"]["type"] == "link"
assert files[b"/l/b"]["size"] == 5 and files[b"/l/c"]["mode"] == "4751"
PY
gfs find /l --json | python3 -c 'import json, sys
assert [json.loads(line)["type"] for line in sys.stdin].count("dir") == 2'
assert_equals "$(gfs ls --json /l/a /absent 2>/dev/null |
	python3 -c 'import json, sys; print([f["name"] for f in json.load(sys.stdin)])')" "['a']"
expect_output '[]' gfs ls --json /m1
assert_equals "$(gfs find /l/sub -print0 | tr -cd '\0' | wc -c)" 3
# Raw to a file, "?" to a terminal.
assert_contains "$(gfs ls /l/sub)" "$name"
if command -v script >/dev/null; then
	script -qec "gfs ls -1 /l/sub" /dev/null </dev/null >shown
	assert_contains "$(<shown)" 'we"ird\ ???é'
fi
expect_ok gfs rm "/l/sub/$name"

# -- stat
expect_ok gfs stat /l/link
assert_contains "$output" "/l/link -> b"
assert_contains "$output" "symbolic link"
expect_ok gfs stat -L /l/link
assert_contains "$output" "regular file"
assert_contains "$output" "Modify: 2022-01-01 00:00:00.000000000 +0000"
expect_fail -s 1 gfs stat /absent /l/a
assert_contains "$output" "gfs stat: /absent: No such file or directory"

# -- patterns: expanded by gfs; a literal path wins; no match is an error
expect_output $'/l/a\n/l/b\n/l/c' gfs ls -d '/l/[abc]'
expect_output $'/l/sub/deep' gfs ls '/*/s?b/d*'
expect_fail -s 1 gfs ls '/l/z*'
assert_equals "$output" "gfs ls: /l/z*: no match"
put star '/m1/*'
put other /m1/other
expect_output star gfs cat '/m1/*'
expect_ok gfs rm '/m1/*'
expect_output other gfs ls /m1
expect_ok gfs rm 'gfs:/m1/*'
expect_output "" gfs ls /m1

# -- find
expect_output $'/l\n/l/.hidden\n/l/a\n/l/b\n/l/c\n/l/link\n/l/sub\n/l/sub/deep' gfs find /l
expect_output $'/l/sub/deep' gfs find /l -name 'd*'
expect_output $'/l\n/l/sub' gfs find /l -type d
expect_output /l/link gfs find /l --type l
expect_output $'/l/b' gfs find /l -type f -size +3c
expect_output $'/l/c' gfs find /l -type f -size 3c
expect_output $'/l/a\n/l/b\n/l/c' gfs find /l -type f -mtime +100
expect_output $'/l/b' gfs find /l -type f -newer /l/c -mtime +100
expect_output $'/l/sub' gfs find /l -mindepth 1 -maxdepth 1 -type d
expect_output $'/d/e/f\n/d/empty\n/d/g/h\n/d/private' gfs find /d -empty
expect_fail -s 2 gfs find /l -size many
expect_fail -s 2 gfs find /l -type q
expect_fail -s 1 gfs find /absent /l/a
assert_equals "$output" $'gfs find: /absent: No such file or directory\n/l/a'

# -- chmod, chown
gfs cp -r /l /c
expect_ok gfs chmod -R u+rw,go=rX /c
assert_equals "$(mode_of /c/a) $(mode_of /c/c) $(mode_of /c/sub)" "0644 0755 0755"
expect_ok gfs chmod -w /c/a
assert_equals "$(mode_of /c/a)" 0444
expect_ok gfs chmod 600 /c/a /c/link
assert_equals "$(mode_of /c/a) $(mode_of /c/b)" "0600 0600"
expect_fail -s 2 gfs chmod 999 /c/a
expect_fail -s 1 gfs chmod 600 /absent /c/c
assert_equals "$(mode_of /c/c)" 0600
uid=$(field /c/a 'f["uid"]') gid=$(field /c/a 'f["gid"]')
expect_ok gfs chown -R "$uid:$gid" /c
expect_ok gfs chown "$me:" /c/a
expect_ok gfs chown ":$group" /c/a
expect_ok gfs chown -h "$me:$group" /c/link
expect_fail -s 1 gfs chown nobody-such /c/a
assert_equals "$output" "gfs chown: nobody-such: no such user of the grid"

# -- touch
expect_ok gfs touch -c /c/none
expect_fail -s 1 gfs stat /c/none
expect_ok gfs touch /c/new
assert_equals "$(field /c/new 'f["size"]') $(mode_of /c/new)" "0 0644"
expect_ok gfs touch -d '@1000000000.25' /c/new
assert_equals "$(field /c/new 'f["mtime"] + f["atime"]')" \
	"2001-09-09T01:46:40.250000Z2001-09-09T01:46:40.250000Z"
expect_ok gfs touch -m -d 2002-02-02T02:02:02Z /c/new
assert_equals "$(field /c/new 'f["mtime"] + f["atime"]')" \
	"2002-02-02T02:02:02.000000Z2001-09-09T01:46:40.250000Z"
expect_ok gfs touch -r /c/new /c/b
assert_equals "$(field /c/b 'f["mtime"]')" 2002-02-02T02:02:02.000000Z
expect_fail -s 2 gfs touch -d someday /c/new

# -- ln, mv
expect_ok gfs ln /c/a /c/hard
assert_equals "$(field /c/hard 'f["ino"]')" "$(field /c/a 'f["ino"]')"
assert_equals "$(field /c/a 'f["nlink"]')" 2
expect_fail -s 1 gfs ln /c/b /c/hard
assert_contains "$output" "File exists"
expect_ok gfs ln -f /c/b /c/hard
assert_equals "$(field /c/a 'f["nlink"]')" 1
expect_ok gfs ln -f /c/b /c/hard
expect_ok gfs ln -s gfs:/c/a /c/soft
expect_ok gfs ln -sf /c/b /c/soft
assert_equals "$(field /c/soft 'f["target"]')" /c/b
expect_ok gfs ln -s ../a /c/sub
assert_equals "$(field /c/sub/a 'f["target"]')" ../a
expect_ok gfs mv /c/a /c/moved
expect_fail -s 1 gfs stat /c/a
expect_ok gfs mv '/c/[bm]*' /c/sub
expect_output $'a\nb\ndeep\nmoved' gfs ls /c/sub
expect_ok gfs mv -n /c/sub/b /c/sub/moved
expect_output $'a\nb\ndeep\nmoved' gfs ls /c/sub
expect_ok gfs mv --exchange /c/sub/b /c/sub/moved
assert_equals "$(gfs cat /c/sub/b) $(gfs cat /c/sub/moved)" "1 12345"
expect_ok gfs mv -T /c/sub/b /c/sub/moved
expect_output 1 gfs cat /c/sub/moved
expect_fail -s 1 gfs mv /c /c/sub
expect_fail -s 1 gfs mv /absent /c/x
assert_equals "$output" "gfs mv: /absent to /c/x: No such file or directory"
expect_fail -s 1 gfs mv /c/hard /c/soft /c/c
assert_equals "$output" "gfs mv: /c/c: Not a directory"

# -- cp
expect_ok gfs cp -p /d/timed /c/timed
assert_equals "$(mode_of /c/timed) $(field /c/timed 'f["mtime"]')" \
	"0604 2001-02-03T04:05:06.500000Z"
expect_ok gfs cp /d/timed /d/hello /c/sub
expect_output third gfs cat /c/sub/hello
expect_fail -s 1 gfs cp /c/sub /c/copy
assert_contains "$output" "is a directory (see -r)"
expect_ok gfs cp -r /c/sub /c/copy
assert_equals "$(gfs ls /c/copy)" "$(gfs ls /c/sub)"
assert_equals "$(field /c/copy/a 'f["target"]')" ../a
expect_fail -s 1 gfs cp /d/hello /d/hello
assert_contains "$output" "are the same file"
# Into itself: it ends, and says so.
expect_fail -s 1 gfs cp -r /c/copy /c/copy
assert_contains "$output" "it is the copy"
expect_output $'a\ncopy\ndeep\nhello\nmoved\ntimed' gfs ls /c/copy
expect_output $'a\ndeep\nhello\nmoved\ntimed' gfs ls /c/copy/copy
no_leftovers

# -- trees: there and back again
mkdir -p tree/dir/deeper tree/closed
printf one >tree/one
printf two >tree/dir/two
printf three >"tree/dir/deeper/th ree*"
ln -s dir/two tree/link
ln -s /nowhere tree/broken
printf shut >tree/closed/in
chmod 500 tree/closed
mkfifo tree/fifo
touch -d 2003-03-03 tree/one tree/dir
expect_fail -s 1 gfs put -rp tree /t
assert_equals "$output" "gfs put: tree/fifo: left out: not a file, directory or link"
rm tree/fifo
expect_ok gfs put -rp tree /t
expect_output $'broken\nclosed\ndir\nlink\none\ntree' gfs ls /t
assert_equals "$(mode_of /t/closed) $(field /t/dir 'f["mtime"]')" \
	"0500 2003-03-03T00:00:00.000000Z"
expect_ok gfs get -rp /t/tree back-tree
assert_equals "$(cd back-tree && find . ! -name . -printf '%P %m %l\n' | sort)" \
	"$(cd tree && find . ! -name . -printf '%P %m %l\n' | sort)" "the tree that came back"
diff -r --no-dereference tree back-tree
[ ! back-tree/one -nt tree/one ] || fail "get -rp changed a time"
# Without -p, a directory that was there keeps its mode, and a new one gets the source's.
gfs mkdir -m 0733 /t2
expect_ok gfs put -r tree/. /t2
assert_equals "$(mode_of /t2) $(mode_of /t2/dir) $(mode_of /t2/closed)" "0733 0755 0500"
expect_ok gfs get -r /t2/closed closed2
assert_equals "$(stat -c %a closed2)" 500
gfs chmod 0700 /t2/closed # only root removes from a directory without w
expect_ok gfs rm -r /t2
expect_fail -s 1 gfs put --config "$T/absent.conf" local /x
# Into a directory that is there; a name of the grid never leads out through a local link.
mkdir into outside
ln -s "$T/outside" into/tree
mkdir into/t
ln -s "$T/outside" into/t/dir
expect_fail -s 1 gfs get -r /t into
assert_contains "$output" "into/t/dir: Not a directory"
assert_equals "$(ls outside)" "" "what a link let out"
assert_equals "$(<into/t/one)" one
no_leftovers

# -- rm
expect_fail -s 1 gfs rm /absent
expect_ok gfs rm -f /absent
expect_ok gfs rm -f
expect_fail -s 1 gfs rm /c
assert_equals "$output" "gfs rm: /c: Is a directory"
for path in / /c/.. /c/. gfs: //; do
	expect_fail -s 1 gfs rm -rf "$path"
	assert_contains "$output" "refusing"
done
expect_ok gfs rm /c/soft
expect_ok gfs rm -rv /c/copy/copy
assert_contains "$output" "removed /c/copy/copy/hello"
printf 'y\nn\ny\n' | gfs rm -i /c/sub/hello /c/sub/deep /c/sub/timed 2>/dev/null
expect_output $'a\ndeep\nmoved' gfs ls /c/sub
gfs chmod 0700 /t/closed /t/tree/closed
expect_ok gfs rm -r /c /t /m2
expect_fail -s 1 gfs stat /c
# More than one page of a directory.
mkdir many
(cd many && seq 3000 | xargs touch)
expect_ok gfs put -r many /many
assert_equals "$(gfs ls /many | wc -l)" 3000
assert_equals "$(gfs find /many -type f | wc -l)" 3000
expect_ok gfs rm -r '/ma*'
expect_output $'d\nl\nm1' gfs ls /
