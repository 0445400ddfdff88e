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
bin/gfsmount
etc/gridstage/echod.conf
etc/gridstage/fsd.conf
etc/gridstage/gfs.conf
etc/gridstage/metad.conf
include/gridstage/gfs.h
include/gridstage/gfs_version.h
lib/libgfs.so
lib/libgfs.so.0
lib/libgfs.so.$version
lib/pkgconfig/gfs.pc
lib/systemd/system/gfs-echod.service
lib/systemd/system/gfs-fsd.service
lib/systemd/system/gfs-metad.service
sbin/gfs-echod
sbin/gfs-fsd
sbin/gfs-metad
share/bash-completion/completions/gfs
share/bash-completion/completions/gfsmount
share/man/man1/gfs.1
share/man/man3/gfs.3
share/man/man5/gfs-echod.conf.5
share/man/man5/gfs-fsd.conf.5
share/man/man5/gfs-metad.conf.5
share/man/man5/gfs.conf.5
share/man/man8/gfs-echod.8
share/man/man8/gfs-fsd.8
share/man/man8/gfs-metad.8
share/man/man8/gfsmount.8" "installed files"
assert_equals "$(files_below "$dest" | grep -cv "^${prefix#/}/" || true)" 0 "files outside the prefix"

# Templates are filled in with the final place, without DESTDIR.
unit=$(<"$dest$prefix/lib/systemd/system/gfs-echod.service")
assert_contains "$unit" "ExecStart=$prefix/sbin/gfs-echod -f -c $prefix/etc/gridstage/echod.conf"
assert_lacks "$unit" @
expect_ok "$dest$prefix/bin/gfs" --version
assert_contains "$output" "$version"

# A program built the way a user would: only the .pc file knows the sub-directory.
cat >"$T/hello.c" <<'C'
#include <gfs.h>
#include <stdio.h>
int main(void)
{
	struct gfs *fs;

	puts(gfs_version());
	return gfs_connect(NULL, &fs) == 0 || puts(gfs_error()) < 0;
}
C
export PKG_CONFIG_PATH=$dest$prefix/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$dest
read -r -a flags <<<"$(pkg-config --cflags --libs gfs)"
expect_ok gcc -std=c99 -pedantic -Wall -Werror -o "$T/hello" "$T/hello.c" "${flags[@]}"
output=$(GFS_CONFIG=$T/none LD_LIBRARY_PATH=$dest$prefix/lib "$T/hello")
assert_equals "${output%%$'\n'*}" "$version" "gfs_version() of the installed library"
assert_contains "$output" "$T/none: No such file or directory"
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
