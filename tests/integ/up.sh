#!/bin/bash
# gfs up makes and starts a grid in one directory, again and again, and gfs down stops it; neither
# touches what it did not make.
. "$(dirname "$0")/../lib/testlib.sh"

# What gfs up starts is nobody's child: it must be stopped in each case.
grids=()
stop_grids()
{
	local status=$? grid
	trap - EXIT ERR
	set +e
	for grid in "${grids[@]}"; do
		cp "$grid/log/metad.log" "$T/${#grid}.log" 2>/dev/null
		gfs down --dir "$grid" --force --timeout 2s >/dev/null 2>&1
	done
	(exit $status)
	testlib_cleanup
}
trap stop_grids EXIT
unset GFS_GRID GFS_CONFIG GFS_KEY
export HOME=$T/home
mkdir "$HOME"

# up DIR [OPTION...]: must work; its JSON is in $output then.
up()
{
	local grid=$1
	shift
	grids+=("$grid")
	expect_ok gfs up --dir "$grid" --json "$@"
}
# field NAME: of the JSON in $output; "pid" and "started" are metad's.
field()
{
	python3 -c 'import json, sys
grid = json.load(sys.stdin)
value = {**grid, **grid["daemons"][0]}[sys.argv[1]]
print(value if not isinstance(value, list) else "\n".join(value))' "$1" <<<"$output"
}
# One that has ended may wait for its parent, whoever that is here.
alive() { kill -0 "$1" 2>/dev/null && ! grep -q '^State:[[:space:]]*Z' "/proc/$1/status"; }
kept() { (cd "$1" && cat keys client.key fsd1.key users grid.mark | sha256sum); }

# -- a new grid: what is there, and who may look at it
grid=$T/new/deep/grid
umask 000
expect_ok gfs up --dir "$grid"
grids+=("$grid")
assert_contains "$output" "The grid in $grid is up; you are user:$(id -un)."
assert_contains "$output" ". $grid/env.sh"
assert_equals "$(cd "$grid" && find . -maxdepth 2 ! -path './metad/*' | LC_ALL=C sort | tr '\n' ' ')" \
	". ./client.key ./env.sh ./fsd1 ./fsd1.conf ./fsd1.key ./fsd1/spool ./gfs.conf ./grid.mark ./keys \
./log ./log/fsd1.log ./log/metad.log ./metad ./metad.conf $([ "$(id -u)" -eq 0 ] || echo './root.key \
')./run ./run/fsd1.addr ./run/fsd1.pid ./run/fsd1.sock ./run/metad.addr ./run/metad.pid \
./run/metad.sock ./users " "files of a grid"
for file in keys client.key users metad.conf fsd1.conf fsd1.key gfs.conf env.sh grid.mark \
	run/metad.sock run/fsd1.sock; do
	assert_equals "$(stat -c %a "$grid/$file")" 600 "mode of $file"
done
for dir in . metad fsd1 fsd1/spool log run; do
	assert_equals "$(stat -c %a "$grid/$dir")" 700 "mode of $dir"
done
assert_equals "$(find "$grid" -perm /007 ! -type l)" "" "open to everybody"
umask 022
assert_equals "$(gfs key list "$grid/client.key" | awk '{ print $1, $NF }')" \
	"user:$(id -un) admin" "client key"
assert_contains "$(<"$grid/users")" "user $(id -un) $(id -u) $(id -g)"
assert_contains "$(<"$grid/users")" "group root 0"
assert_equals "$(grep -c '^user root 0 ' "$grid/users")" 1 "roots"

# -- a second time nothing happens
up "$grid"
assert_equals "$(field started)" False "started again"
pid=$(field pid)
assert_equals "$(<"$grid/run/metad.pid")" "$pid" "pid file"
mapfile -t addresses < <(field addresses)
assert_equals "${addresses[0]}" "unix:$grid/run/metad.sock" "first address"
assert_contains "${addresses[1]}" "127.0.0.1:"
for address in "${addresses[@]}"; do
	expect_ok gfs ping --key "$grid/client.key" -q -c 1 "$address"
done
before=$(kept "$grid")

# -- after a crash the same grid comes back, by $GFS_GRID this time
kill -KILL "$pid"
expect_ok env GFS_GRID="$grid" gfs up --json --fsd 0 --rpcd 0
assert_equals "$(field started)" True "started after a crash"
[ "$(field pid)" != "$pid" ] || fail "the same process after a kill"
pid=$(field pid)
assert_equals "$(kept "$grid")" "$before" "keys, users and marker after a crash"

# -- a daemon that does not stop is reported, and killed if asked to
kill -STOP "$pid"
expect_fail -s 1 gfs down --dir "$grid" --timeout 100ms
assert_contains "$output" "metad (process $pid) does not stop; see --force"
[ -S "$grid/run/metad.sock" ] || fail "cleaned up under a running daemon"
expect_ok gfs down --dir "$grid" --timeout 100ms --force
assert_contains "$output" "metad (process $pid) killed"
! alive "$pid" || fail "still there"

# -- down: nothing runs, nothing that pretends so is left, the rest stays
up "$grid"
pid=$(field pid)
expect_ok gfs down --dir "$grid"
assert_contains "$output" "metad (process $pid) stopped"
! alive "$pid" || fail "still there after gfs down"
[ ! -e "$grid/run" ] || fail "left: $(find "$grid/run")"
[ ! -e "$grid/env.sh" ] || fail "env.sh is left"
assert_equals "$(kept "$grid")" "$before" "keys, users and marker after down"
expect_ok gfs down --dir "$grid"
assert_contains "$output" "nothing was running"

# -- a pid file proves nothing: a stranger's number without the lock, and even with it
sleep 1000 &
stranger=$!
mkdir "$grid/run"
echo $stranger >"$grid/run/metad.pid"
expect_ok gfs down --dir "$grid"
alive $stranger || fail "a stranger was killed"
mkdir "$grid/run"
echo $stranger >"$grid/run/metad.pid"
exec 7<>"$grid/run/metad.pid"
flock -n 7
expect_fail -s 1 gfs down --dir "$grid"
assert_contains "$output" "no daemon of ours"
exec 7>&-
alive $stranger || fail "a stranger was killed"
kill $stranger
wait $stranger || true

# -- who was killed holds the lock until the kernel is done with it, and is not one that runs
mkfifo "$T/hold"
python3 -c '
import ctypes, fcntl, os, sys
if os.fork() == 0:
    ctypes.CDLL(None).prctl(15, b"gfs-metad", 0, 0, 0)
    file = open(sys.argv[1], "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write("%d\n" % os.getpid())
    file.flush()
    if os.fork() == 0:
        print("locked", flush=True)
        open(sys.argv[2]).read()
    os._exit(0)
open(sys.argv[2]).read()  # does not wait for its child: that has ended and keeps its number
' "$grid/run/metad.pid" "$T/hold" >"$T/dying.out" &
dying=$!
exec 7>"$T/hold"
wait_for grep -q locked "$T/dying.out"
wait_for grep -q '^State:[[:space:]]*Z' "/proc/$(<"$grid/run/metad.pid")/status"
expect_fail -s 1 gfs up --dir "$grid"
assert_contains "$output" "metad is just starting or stopping"
exec 7>&-
wait $dying
expect_ok gfs down --dir "$grid"

# -- it may be moved
mv "$grid" "$T/moved"
up "$T/moved"
assert_equals "$(field dir)" "$T/moved"
assert_equals "$(kept "$T/moved")" "$before" "keys, users and marker after a move"

# -- destroy asks, and removes only what is ours
expect_fail -s 2 gfs down --dir "$T/moved" --destroy </dev/null
assert_contains "$output" "--yes"
alive "$(<"$T/moved/run/metad.pid")" || fail "stopped without a yes"
expect_ok gfs down --dir "$T/moved" --destroy --yes
assert_contains "$output" "$T/moved removed"
[ ! -e "$T/moved" ] || fail "$T/moved is still there"
up "$T/guest"
echo precious >"$T/guest/thesis"
ln -s "$HOME" "$T/guest/metad/link"
touch "$HOME/mine"
expect_fail -s 1 gfs down --dir "$T/guest" --destroy --yes
assert_contains "$output" "holds other things"
assert_equals "$(ls -A "$T/guest")" thesis "left for the guest"
[ -e "$HOME/mine" ] || fail "a link was followed"

# -- other people's directories
mkdir "$T/foreign"
echo data >"$T/foreign/data"
expect_fail -s 1 gfs up --dir "$T/foreign"
assert_contains "$output" "is not empty, and not made by gfs up"
expect_fail -s 1 gfs down --dir "$T/foreign" --destroy --yes
assert_contains "$output" "no grid"
for text in "" "something else"; do
	printf '%s' "$text" >"$T/foreign/grid.mark"
	expect_fail -s 1 gfs up --dir "$T/foreign"
	expect_fail -s 1 gfs down --dir "$T/foreign" --destroy --yes
	assert_equals "$(<"$T/foreign/grid.mark")" "$text" "a file of that name"
done
assert_equals "$(cd "$T/foreign" && echo *)" "data grid.mark" "in a foreign directory"
expect_fail -s 1 gfs down --dir "$T/nowhere"
assert_contains "$output" "there is no grid in $T/nowhere"
[ ! -e "$T/nowhere" ] || fail "gfs down made a directory"
expect_fail -s 1 gfs up --dir "$T/foreign/data"
if [ "$(id -u)" -eq 0 ]; then
	mkdir "$T/theirs"
	chown 65534 "$T/theirs"
	expect_fail -s 1 gfs up --dir "$T/theirs"
	assert_contains "$output" "belongs to another user"
	up "$T/given"
	chown 65534 "$T/given"
	expect_fail -s 1 gfs down --dir "$T/given" --destroy --yes
	assert_contains "$output" "belongs to another user"
	chown 0 "$T/given"
fi

# -- four at once: one starts it, all say that it runs
grids+=("$T/race")
jobs=()
for i in 1 2 3 4; do
	gfs up --dir "$T/race" --json >"$T/race.$i" 2>&1 &
	jobs+=($!)
done
for i in 1 2 3 4; do
	wait "${jobs[i - 1]}" || fail "one of four: $(<"$T/race.$i")"
done
assert_equals "$(cat "$T"/race.? | grep -c '"started": true')" 1 "starters of four"
assert_equals "$(cat "$T"/race.? | grep -o '"pid": [0-9]*' | sort -u | wc -l)" 2 "daemons of four"
# And against somebody who removes it: each finds a whole grid or none.
for i in 1 2 3; do
	gfs down --dir "$T/race" --destroy --yes >"$T/race.down" 2>&1 &
	job=$!
	up "$T/race"
	wait $job || fail "destroy against up: $(<"$T/race.down")"
	up "$T/race"
done

# -- storage nodes: as many as asked for, each with its own key and label; more of them later
grid=$T/nodes
# nodes: what metad has, "fsd1 host1 true" a line each.
nodes()
{
	gfs -c "$grid/gfs.conf" status --json | python3 -c 'import json, sys
for n in json.load(sys.stdin)["nodes"]: print(n["name"], n["host"], str(n["up"]).lower())'
}
daemons() { python3 -c 'import json, sys
for d in json.load(sys.stdin)["daemons"]: print(d["name"], str(d["started"]).lower())' <<<"$output"; }
up "$grid" --fsd 0
assert_equals "$(daemons)" "metad true" "daemons of a grid without storage"
up "$grid"
assert_equals "$(daemons)" "metad false" "it stays without"
up "$grid" --fsd 1
assert_equals "$(daemons)" $'metad false\nfsd1 true' "a first node, beside a running metad"
up "$grid" --fsd 3
assert_equals "$(daemons)" $'metad false\nfsd1 false\nfsd2 true\nfsd3 true' "two more"
assert_equals "$(nodes)" $'fsd1 host1 true\nfsd2 host2 true\nfsd3 host3 true' "nodes in metad"
for i in 1 2 3; do
	assert_equals "$(gfs key list "$grid/fsd$i.key" | awk '{ print $1, $NF }')" \
		"$(gfs key list "$grid/keys" | awk -v id="host:fsd$i" '$1 == id { print $1, $NF }')" \
		"key of fsd$i"
done
# Who was killed comes back, and up returns when metad has its new address.
kill -KILL "$(<"$grid/run/fsd2.pid")"
up "$grid" --fsd 1
assert_equals "$(daemons)" $'metad false\nfsd1 false\nfsd2 true\nfsd3 false' "after a crash"
assert_contains "$(nodes)" "fsd2 host2 true"
kill -KILL "$(<"$grid/run/metad.pid")"
up "$grid"
assert_equals "$(daemons)" $'metad true\nfsd1 false\nfsd2 false\nfsd3 false' "metad came back"
assert_equals "$(nodes | grep -c true)" 3 "nodes that found it again"
# A spool that has vanished is not made anew: its files may be on a disk that is not mounted.
expect_ok gfs down --dir "$grid"
for i in 1 2 3; do assert_contains "$output" "fsd$i (process"; done
mv "$grid/fsd2" "$grid/away"
expect_fail -s 1 gfs up --dir "$grid"
assert_contains "$output" "fsd2 did not start"
[ ! -e "$grid/fsd2" ] || fail "a spool was made in place of the one that is missing"
mv "$grid/away" "$grid/fsd2"
up "$grid"
assert_equals "$(nodes | grep -c true)" 3 "nodes with the spool back"
expect_ok gfs down --dir "$grid" --destroy --yes
[ ! -e "$grid" ] || fail "left: $(find "$grid")"

# -- any name of a directory will do
odd=$T/"it's \$HOME,\"a b\"
c"
long=$T/$(printf 'long%.0s' {1..30})
for grid in "$odd" "$long"; do
	up "$grid"
	assert_equals "$(field dir)" "$grid" "odd directory"
	socket=$(field addresses | sed -n 's/^unix://p')
	assert_equals "$(stat -c '%a %u' "${socket%/*}")" "700 $(id -u)" "the socket's directory"
	# shellcheck disable=SC2016
	assert_equals "$(sh -c '. "$1"/env.sh && printf "%s|%s" "$GFS_GRID" "$GFS_CONFIG"' sh "$grid")" \
		"$grid|$grid/gfs.conf" "environment"
	# shellcheck source=/dev/null
	(. "$grid/env.sh" && gfs down) >"$T/down.out" || fail "gfs down by env.sh"
	[ ! -e "$socket" ] || fail "$socket is left"
done
[ ! -e "${socket%/*}" ] || fail "${socket%/*} is left"

# -- the default place
(
	unset GFS_GRID
	gfs up --json >"$T/default.out"
)
grids+=("$HOME/.gridstage/grid")
assert_contains "$(<"$T/default.out")" "\"dir\": \"$HOME/.gridstage/grid\""
expect_ok gfs down

# -- installed: the daemon is in ../sbin, and nowhere in PATH
mkdir -p "$T/opt/bin" "$T/opt/sbin"
cp "$BUILD/bin/gfs" "$T/opt/bin"
expect_fail -s 1 env PATH=/usr/bin:/bin "$T/opt/bin/gfs" up --dir "$T/installed"
assert_contains "$output" "there is no gfs-metad"
cp "$BUILD/bin/gfs-metad" "$T/opt/sbin"
grids+=("$T/installed")
expect_fail -s 1 env PATH=/usr/bin:/bin "$T/opt/bin/gfs" up --dir "$T/installed"
assert_contains "$output" "there is no gfs-fsd"
cp "$BUILD/bin/gfs-fsd" "$T/opt/sbin"
expect_ok env PATH=/usr/bin:/bin "$T/opt/bin/gfs" up --dir "$T/installed"
expect_ok gfs down --dir "$T/installed"

# -- a daemon that cannot start says why
mkdir "$T/installed/metad.conf.d"
printf '[metad]\nlisten = unix:/proc/no/such/place\n' >"$T/installed/metad.conf.d/wrong.conf"
expect_fail -s 1 gfs up --dir "$T/installed"
assert_contains "$output" "metad did not start; the end of its log $T/installed/log/metad.log:"
assert_contains "$output" "cannot listen"
assert_lacks "$output" "stopped" "lines of an earlier life"

# -- wrong usage is one line and leaves nothing
for wrong in "--fsd 100" "--rpcd 2" "--fsd x" "--rpcd -1" "here"; do
	read -r -a words <<<"$wrong"
	expect_fail -s 2 gfs up --dir "$T/wrong" "${words[@]}"
	assert_equals "$(wc -l <<<"$output")" 1 "lines about $wrong"
done
expect_fail -s 2 gfs up --dir "$T/wrong" --no-such-option
expect_fail -s 2 gfs up --dir ""
expect_fail -s 2 gfs down --dir "$T/wrong" here
expect_fail -s 2 gfs down --dir "$T/wrong" --timeout soon
[ ! -e "$T/wrong" ] || fail "a directory was made"
