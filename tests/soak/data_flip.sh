#!/bin/bash
# tests/integ/data_flip.sh with a file of 1 GiB as well.
. "$(dirname "$0")/../lib/testlib.sh"

mkdir "$T/run"
DATA_SIZES=${DATA_SIZES:-$((1024 * 1024 * 1024))} \
	TEST_SCRATCH=$T/run bash "$TOP/tests/integ/data_flip.sh"
