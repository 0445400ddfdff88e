#!/bin/bash
# tests/integ/data_kill.sh with files of 1 GiB.
. "$(dirname "$0")/../lib/testlib.sh"

mkdir "$T/run"
DATA_BYTES=${DATA_BYTES:-$((1024 * 1024 * 1024))} DATA_PAUSE_MS=${DATA_PAUSE_MS:-5} \
	TEST_SCRATCH=$T/run bash "$TOP/tests/integ/data_kill.sh"
