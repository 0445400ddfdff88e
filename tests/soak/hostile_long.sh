#!/bin/bash
# tests/integ/hostile.sh again and again, with new seeds, for ten minutes (HOSTILE_MINUTES).
. "$(dirname "$0")/../lib/testlib.sh"

end=$((SECONDS + ${HOSTILE_MINUTES:-10} * 60))
runs=0
while [ $SECONDS -lt $end ]; do
	runs=$((runs + 1))
	seed=$RANDOM$RANDOM$RANDOM
	mkdir "$T/$runs"
	status=0
	HOSTILE_SEED=$seed HOSTILE_FRAMES=${HOSTILE_FRAMES:-4000000} TEST_SCRATCH=$T/$runs \
		bash "$TOP/tests/integ/hostile.sh" >"$T/run.out" 2>&1 || status=$?
	cat "$T/run.out"
	[ $status -eq 0 ] || fail "run $runs failed: HOSTILE_SEED=$seed"
	rm -rf "${T:?}/$runs"
done
echo "$runs runs"
