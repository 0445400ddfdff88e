#!/bin/bash
# The benchmark of names runs through, on a grid of its own, and leaves nothing behind; how fast it
# was is not asked.
. "$(dirname "$0")/../lib/testlib.sh"

[ -x "$BUILD/bench/meta" ] || skip "bench/meta is not built"
mkdir "$T/tmp"
expect_ok env TMPDIR="$T/tmp" "$BUILD/bench/meta" --quick --json "$T/meta.json"
for line in "stat, tcp" "create+close, tcp" "create+4KiB+close, tcp" "mkdir+rmdir, tcp" "unlink, tcp" \
	"readdir(1000), tcp" "stat, unix" "stat, cache on" "targets met"; do
	assert_contains "$output" "$line" "the benchmark's output"
done
python3 -c 'import json, sys
figures = json.load(open(sys.argv[1]))["figures"]
names = {f["name"] for f in figures}
assert "create+4KiB+close, 8 clients" in names, names
assert all(f["per_sec"] > 0 for f in figures if "per_sec" in f)' "$T/meta.json"
[ -z "$(ls -A "$T/tmp")" ] || fail "left: $(find "$T/tmp" -maxdepth 2)"
