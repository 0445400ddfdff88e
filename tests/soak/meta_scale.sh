#!/bin/bash
# tests/integ/meta_scale.sh with ten million files and a directory of a million, times judged.
. "$(dirname "$0")/../lib/testlib.sh"

mkdir "$T/run"
SCALE_FILES=${SCALE_FILES:-10000000} SCALE_DIR=${SCALE_DIR:-1000000} SCALE_SAMPLES=200000 \
	SCALE_JUDGE=1 TEST_SCRATCH=$T/run bash "$TOP/tests/integ/meta_scale.sh"
