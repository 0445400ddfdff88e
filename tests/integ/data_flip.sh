#!/bin/bash
# A flipped byte in a spool is never handed out (rule B8): files of 1 KiB to some MiB, first, middle
# and last byte, read whole, in pieces, backwards, page by page as a mapping is, by descriptor (a
# client of that host) and over the network (one from elsewhere). The only copy is damaged, so the
# read must fail, and with EIO; what is not damaged can still be read.
#
# DATA_SIZES: one more size (tests/soak/data_flip.sh: 1 GiB).
. "$(dirname "$0")/../lib/gridlib.sh"

# The smallest ones are objects because they were cut: a new file of that size is in metad.
sizes=(1024 4097 9000 65536 1048577 $((5 * 1024 * 1024 + 3)))
for size in ${DATA_SIZES:-}; do sizes+=("$size"); done
grid_up 1
# make SIZE: of which there is one object.
make()
{
	expect_ok datatool write /file $(($1 < 9000 ? 9000 : $1)) 1 sync
	[ "$1" -ge 9000 ] || expect_ok datatool truncate /file "$1"
	[ "$(stat -c %s "$(object_of fsd1)")" = "$1" ] || fail "the object of $1 bytes is not there"
}
# refused HOST SIZE HOW: not a wrong byte, and the right error.
refused()
{
	expect_fail env GFS_HOST="$1" "$TOOLS/datatool" read /file "$2" 1 "$3"
	assert_contains "$output" "Input/output error" "$3 of $2 bytes on $1"
	assert_lacks "$output" "wrong bytes" "$3 of $2 bytes on $1"
}
gone() { [ -z "$(object_of fsd1)" ]; }
for size in "${sizes[@]}"; do
	for at in 0 $((size / 2)) $((size - 1)); do
		make "$size"
		object=$(object_of fsd1)
		expect_ok datatool read /file "$size" 1 pages
		flip "$object" $at
		for host in host1 elsewhere; do
			for how in seq back odd pages; do refused $host "$size" $how; done
			# The commands deliver nothing of it either, whole or not.
			expect_fail env GFS_HOST=$host gfs get /file "$T/copy"
			[ ! -e "$T/copy" ] || fail "a damaged file was delivered"
			status=0
			GFS_HOST=$host gfs cat /file >"$T/cat" 2>"$T/cat.err" || status=$?
			[ $status -eq 1 ] || fail "gfs cat ended with $status"
			[ "$(stat -c %s "$T/cat")" -le $at ] || fail "gfs cat went on behind the damage"
			# The block before and the block behind it are good.
			block=$((at / 4096 * 4096))
			[ $block -eq 0 ] || expect_ok env GFS_HOST=$host "$TOOLS/datatool" part /file \
				$((block - 4096)) 4096 1
			behind=$((size - block - 4096))
			[ $behind -le 0 ] || expect_ok env GFS_HOST=$host "$TOOLS/datatool" part /file \
				$((block + 4096)) $((behind < 4096 ? behind : 4096)) 1
		done
		flip "$object" $at
		expect_ok datatool read /file "$size" 1 seq
		expect_ok gfs rm /file
		wait_for gone
	done
done
