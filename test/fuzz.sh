#!/usr/bin/env bash
# Runs every fuzz target of the project on a number of new inputs (FUZZTIME, default
# 8000x; a duration as 1m works too). A count, and not a duration, so that a busy
# machine does the same work. The seeds, and every input that ever failed, are run
# by plain `go test` as well; this looks for new ones.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# go test fuzzes one target of one package at a time.
for file in $(grep -rlE '^func Fuzz' --include='*_test.go' --exclude-dir=node_modules bench internal test | sort); do
	for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
		package=./$(dirname "$file")
		if "$go" test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-8000x}" >"$log" 2>&1; then
			echo "ok  fuzz $package $target"
		else
			cat "$log"
			echo "FAIL fuzz $package $target" >&2
			exit 1
		fi
	done
done
