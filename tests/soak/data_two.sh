#!/bin/bash
# tests/integ/data_two.sh with ten times as many records and cuts.
. "$(dirname "$0")/../lib/testlib.sh"

mkdir "$T/run"
DATA_RECORDS=${DATA_RECORDS:-4000} DATA_ROUNDS=${DATA_ROUNDS:-400} \
	TEST_SCRATCH=$T/run bash "$TOP/tests/integ/data_two.sh"
