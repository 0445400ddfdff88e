#!/bin/bash
# Real programs on a mount: git, tar, sqlite3, cp -a, a compiler; also while metad and the storage node are killed.
# shellcheck source-path=SCRIPTDIR/.. source=../lib/mountlib.sh
. "$(dirname "$0")/../../lib/mountlib.sh"

grid_up 1
mount_grid m
cd "$T/m"
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
mkdir "$T/src"
cp -r "$TOP/common" "$TOP/rpc" "$TOP/Makefile" "$T/src"
# -- git
git init -q repo
cp -r "$T/src/." repo/
git -C repo add -A
git -C repo commit -qm first
git -C repo gc -q
git clone -q repo clone
assert_equals "$(git -C clone status --porcelain)" "" "git status of a clone"
diff -r "$T/src" clone --exclude=.git
git -C clone fsck >/dev/null 2>&1 || fail "git fsck"
# -- cp -a keeps what there is
cp -a "$T/src" copied
diff -r "$T/src" copied
assert_equals "$(stat -c %Y-%a-%s copied/Makefile)" "$(stat -c %Y-%a-%s "$T/src/Makefile")" "cp -a"
# -- a program is built and run there
printf '#include <stdio.h>\nint main(void) { puts("built"); return 0; }\n' >hello.c
gcc -o hello hello.c
assert_equals "$(./hello)" built
# -- sqlite by two processes
if command -v sqlite3 >/dev/null; then
	sqlite3 db 'create table t(i integer);'
	for who in 1 2; do
		for n in 1 2 3 4 5 6 7 8 9 10; do echo "insert into t values($who$n);"; done |
			sqlite3 -cmd '.timeout 20000' db &
	done
	wait
	assert_equals "$(sqlite3 db 'select count(*) from t; pragma integrity_check;' | xargs)" "20 ok" sqlite
fi
# -- tar, with the servers being killed underneath
tar cf "$T/src.tar" -C "$T/src" .
(
	for victim in metad fsd1 metad; do
		sleep 0.3
		kill -KILL "$(cat "$G/run/$victim.pid")"
		gfs up --dir "$G" >/dev/null
	done
) &
killer=$!
for i in 1 2 3; do
	mkdir "un$i"
	tar xf "$T/src.tar" -C "un$i" || fail "tar failed while servers were killed"
done
wait "$killer"
for i in 1 2 3; do diff -r "$T/src" "un$i"; done
# -- and what was there before the mount was ended is there in the next
cd "$T"
unmount m
mount_grid m
diff -r "$T/src" "$T/m/un3"
unmount m
