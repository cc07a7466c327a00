#!/bin/sh
# compile.sh LOG NVCC...: compiles, and leaves what ptxas says of each kernel's registers and spills in
# LOG (tests/cuda_resources.py reads it); whatever else is said is shown.
log=$1
shift
"$@" -Xptxas -v 2>"$log"
status=$?
grep -vE '^ptxas info|bytes stack frame' "$log" >&2
exit $status
