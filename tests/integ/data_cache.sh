#!/bin/bash
# Cache copies (rule B11): a client that reads a file of another host gets a copy to its own host if
# it is configured so. The copy counts towards nothing, is read from, dies with its generation, and
# becomes one that counts when another is wanted.
. "$(dirname "$0")/../lib/gridlib.sh"

size=$((8 * 1024 * 1024))
grid_up 2
export GFS_HOST=host1
expect_ok datatool write /file $size 1 sync
assert_equals "$(where /file host)" host1 "where it was written"
expect_ok gfs rep --wait /file

# -- without being configured nothing is copied
export GFS_HOST=host2
expect_ok datatool read /file $size 1 seq
assert_equals "$(where /file host)" host1 "after a read without cache copies"

# -- configured: read in a row, and there is one on this host
# For all commands from here on.
mkdir "$GFS_CONFIG.d"
printf '[gfs]\ncache_copies = yes\n' >"$GFS_CONFIG.d/cache.conf"
expect_ok datatool read /file $size 1 seq
wait_for has_copies /file 2
assert_equals "$(where /file host | sort | tr '\n' ' ')" "host1 host2 " "hosts"
assert_equals "$(where /file cache | sort | tr '\n' ' ')" "false true " "classes"
expect_ok gfs where --json /file
assert_contains "$output" '"wanted": 1' "what is wanted"

# -- it is read: with the other node down the bytes are there
grid_kill fsd1
expect_ok datatool read /file $size 1 pages
grid_up 2

# -- a new generation: it dies, and the new bytes are seen at once
expect_ok datatool write /file $size 2 sync
expect_ok datatool read /file $size 2 seq
one_left() { has_copies /file 1 && [ "$(where /file node | wc -l)" -eq 1 ] &&
	[ "$(find "$G"/fsd?/spool/objects -type f ! -name '*.sum' ! -name '*.new' | wc -l)" -eq 1 ]; }
wait_for one_left

# -- one more that is wanted is made of a cache copy
other=host1
[ "$(where /file host)" != host1 ] || other=host2
expect_ok env GFS_HOST=$other "$TOOLS/datatool" read /file $size 2 seq
wait_for has_copies /file 2
expect_ok gfs rep -n 2 --wait /file
assert_equals "$(where /file cache | sort | tr '\n' ' ')" "false false " "classes"
expect_ok datatool read /file $size 2 odd
