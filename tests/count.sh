# count.sh: sourced by run.sh and full.sh; adds up what the suites passed and failed.
passed=0 failed=0 skipped=

# suite NAME COMMAND...: runs a suite that prints meson's, pytest's or no counts of its own.
suite() {
    local name=$1 log status=0 p f
    shift
    log=$(mktemp)
    echo "=== $name"
    "$@" 2>&1 | tee "$log" || status=1
    p=$(sed -nE 's/^Ok: +([0-9]+).*/\1/p; s/(.*[^0-9])?([0-9]+) passed.*/\2/p' "$log" | tail -1)
    f=$(sed -nE 's/^(Fail|Timeout): +([0-9]+).*/\2/p; s/(.*[^0-9])?([0-9]+) (failed|errors?)[ ,].*/\2/p' "$log" |
        awk '{n += $1} END {print n + 0}')
    note_skipped "$log"
    rm -f "$log"
    if [ -z "$p" ]; then p=$((status == 0)); fi
    if [ $status != 0 ] && [ "$f" = 0 ]; then f=1; fi
    passed=$((passed + p)) failed=$((failed + f))
}

# note_skipped LOG: keeps the lines in which tests say that they did not run, for the end.
note_skipped() {
    local lines
    lines=$(grep -ahE '^SKIPPED' "$1" | sort -u) || return 0
    skipped+=$lines$'\n'
}

# Prints what was skipped and the closing line; succeeds when nothing failed. TOKEND_COUNTS: a
# file that keeps the sums of several scripts.
close_counts() {
    [ -z "${TOKEND_COUNTS:-}" ] || echo "$passed $failed" >>"$TOKEND_COUNTS"
    [ -z "$skipped" ] || printf '=== not run\n%s' "$skipped"
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}
