#!/bin/sh
# Compares the output for a short text with the expected one.
set -e
cd "$(dirname "$0")/.."
./tally test/text.txt | diff test/expected.txt -
echo "test passed"
