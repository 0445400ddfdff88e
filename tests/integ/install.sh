#!/bin/bash
# make install puts exactly the listed files under DESTDIR, the .pc file compiles a program
# against them, and make uninstall leaves nothing but an edited configuration.
. "$(dirname "$0")/../lib/testlib.sh"

[ -z "$SANITIZE" ] || skip "the plain build is what gets installed"
cd "$TOP"
version=$(sed -n 's/^VERSION *:= *//p' Makefile)
dest=$T/dest
prefix=/opt/grid
vars=(BUILD="$BUILD" DESTDIR="$dest" PREFIX="$prefix")
files_below() { (cd "$1" && find . ! -type d | sed 's|^\./||' | LC_ALL=C sort); }

expect_ok make "${vars[@]}" install
assert_equals "$(files_below "$dest$prefix")" "\
bin/gfs
etc/gridstage/echod.conf
include/gridstage/gfs_version.h
lib/libgfs.so
lib/libgfs.so.0
lib/libgfs.so.$version
lib/pkgconfig/gfs.pc
lib/systemd/system/gfs-echod.service
sbin/gfs-echod
share/bash-completion/completions/gfs
share/man/man1/gfs.1
share/man/man5/gfs-echod.conf.5
share/man/man8/gfs-echod.8" "installed files"
assert_equals "$(files_below "$dest" | grep -cv "^${prefix#/}/" || true)" 0 "files outside the prefix"

# Templates are filled in with the final place, without DESTDIR.
unit=$(<"$dest$prefix/lib/systemd/system/gfs-echod.service")
assert_contains "$unit" "ExecStart=$prefix/sbin/gfs-echod -f -c $prefix/etc/gridstage/echod.conf"
assert_lacks "$unit" @
expect_ok "$dest$prefix/bin/gfs" --version
assert_contains "$output" "$version"

# A program built the way a user would: only the .pc file knows the sub-directory.
cat >"$T/hello.c" <<'C'
#include <gfs_version.h>
#include <stdio.h>
int main(void)
{
	return puts(gfs_version()) < 0;
}
C
export PKG_CONFIG_PATH=$dest$prefix/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$dest
read -r -a flags <<<"$(pkg-config --cflags --libs gfs)"
expect_ok gcc -std=c99 -pedantic -Wall -Werror -o "$T/hello" "$T/hello.c" "${flags[@]}"
output=$(LD_LIBRARY_PATH=$dest$prefix/lib "$T/hello")
assert_equals "$output" "$version" "gfs_version() of the installed library"
assert_equals "$(pkg-config --modversion gfs)" "$version" "version in gfs.pc"

# Only public names leave the library.
foreign=$(nm -D --defined-only "$dest$prefix/lib/libgfs.so" | awk '$2 != "A" { print $3 }' |
	grep -v '^gfs_' || true)
assert_equals "$foreign" "" "names exported besides gfs_*"

# An edited configuration survives a second install and the uninstall.
echo "# mine" >>"$dest$prefix/etc/gridstage/echod.conf"
expect_ok make "${vars[@]}" install
assert_equals "$(tail -n 1 "$dest$prefix/etc/gridstage/echod.conf")" "# mine" "edited configuration"
expect_ok make "${vars[@]}" uninstall
assert_equals "$(files_below "$dest")" "${prefix#/}/etc/gridstage/echod.conf" "left after uninstall"

rm "$dest$prefix/etc/gridstage/echod.conf"
expect_ok make "${vars[@]}" install
expect_ok make "${vars[@]}" uninstall
assert_equals "$(files_below "$dest")" "" "left after a clean uninstall"
