#!/bin/bash
# tests/integ/data_full.sh with a disk of 2 GiB.
. "$(dirname "$0")/../lib/testlib.sh"

mkdir "$T/run"
DATA_MIB=${DATA_MIB:-2048} \
	TEST_SCRATCH=$T/run bash "$TOP/tests/integ/data_full.sh"
