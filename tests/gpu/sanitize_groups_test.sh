#!/usr/bin/env bash
# Every pattern of every group of tools/sanitize names tests: a test that was renamed would
# otherwise leave its group without a word. Needs no GPU.
#
# usage: sanitize_groups_test.sh TEST_GPU
set -euo pipefail
test_gpu=$1
cd "$(dirname "$0")/../.."

failed=0 count=0
while read -r group filter; do
  IFS=: read -ra patterns <<<"$filter"
  for pattern in "${patterns[@]}"; do
    count=$((count + 1))
    "$test_gpu" --gtest_list_tests --gtest_filter="$pattern" | grep -q '^  ' || {
      echo "sanitize: $group: no test $pattern" >&2
      failed=1
    }
  done
done < <(tools/sanitize --list)
[ "$count" -gt 0 ] || failed=1
echo "sanitize: $count patterns"
exit $failed
