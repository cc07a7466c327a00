#!/usr/bin/env python3
"""must_fail.py PATTERN PROGRAM [ARGUMENT...]: succeeds if the program fails and says so in words
that match the pattern."""
import re
import subprocess
import sys

pattern, *command = sys.argv[1:]
run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print(run.stdout)
if run.returncode == 0:
    sys.exit("the planted fault was not found")
if not re.search(pattern, run.stdout):
    sys.exit(f"it failed, but nothing of what it said matches {pattern!r}")
