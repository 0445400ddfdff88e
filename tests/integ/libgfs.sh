#!/bin/bash
# A C program that knows only gfs.h works on a real grid: names, files, directories, attributes and
# users, two clients that see each other's changes, and open files that live through a kill of metad.
. "$(dirname "$0")/../lib/testlib.sh"

cd "$T"
mkdir data
key() { expect_ok gfs key new "user:$1" -o "$T/$1.key" && expect_ok gfs key add "$T/keys" "$T/$1.key"; }
key ann
cat >users <<'EOF'
user ann 1000 100
user bob 1001 100
group staff 100
EOF
cat >metad.conf <<EOF
[metad]
listen = unix:$T/metad.sock
keys = keys
dir = data
users = users
root_owner = 1000:100
EOF
cat >gfs.conf <<EOF
[gfs]
metad = unix:$T/metad.sock
key_file = ann.key
EOF
export GFS_CONFIG=$T/gfs.conf

flags=()
[ -z "$SANITIZE" ] || flags=(-fsanitize="$SANITIZE")
expect_ok gcc -std=gnu99 -Wall -Wextra -Werror -g "${flags[@]}" -I"$TOP/include" -o program \
	"$TOP/tests/integ/libgfs_program.c" -L"$BUILD/lib" -Wl,-rpath,"$BUILD/lib" -lgfs

start_daemon gfs-metad -c metad.conf
mkfifo in out
./program <in >out 2>program.log &
program=$!
exec 7>in 8<out
said=
while read -r line <&8; do
	said+="$line "
	[ "$line" = restart ] || continue
	# First in the middle of everything, then in peace.
	case $said in
	*kept*) stop_daemon gfs-metad ;;
	*) kill_daemon gfs-metad ;;
	esac
	start_daemon gfs-metad -c metad.conf
	echo go >&7
done
status=0
wait "$program" || status=$?
[ $status -eq 0 ] || fail "the program ended with status $status: $(<program.log)"
assert_equals "$said" "restart kept restart done " "what it said"
stop_daemon gfs-metad
