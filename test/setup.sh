#!/usr/bin/env bash
# Makes a machine that has only Go ready for `make test`: node and npm for the real
# clients, curl for the examples of the README, a C compiler for the race detector. As root on Debian (or Ubuntu) what is
# missing is installed; otherwise it is named, and the start ends.
set -euo pipefail

missing=()
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
command -v curl >/dev/null || missing+=(curl)
command -v gcc >/dev/null || command -v clang >/dev/null || missing+=(gcc libc6-dev)
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	echo "The tests need ${missing[*]}: install them, or run this as root on Debian." >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
