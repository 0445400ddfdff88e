#!/bin/bash
# tests/integ/gfs_data.sh with files of 1 GiB.
. "$(dirname "$0")/../lib/testlib.sh"

mkdir "$T/run"
DATA_BYTES=${DATA_BYTES:-$((1024 * 1024 * 1024 + 12345))} \
	TEST_SCRATCH=$T/run bash "$TOP/tests/integ/gfs_data.sh"
