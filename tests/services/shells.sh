#!/usr/bin/env bash
# zsh and fish, for the tests of completion in these shells.
#
#   shells.sh     install (as root, on Debian) those that are missing, and print their paths, a line each
set -euo pipefail

[ $# = 0 ] || { sed -n '2,/^set/{s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
missing=()
for shell in zsh fish; do command -v "$shell" > /dev/null || missing+=("$shell"); done
if [ ${#missing[@]} -gt 0 ]; then
    [ "$(id -u)" = 0 ] || { echo "${missing[*]} not found; as root: apt-get install ${missing[*]}" >&2; exit 1; }
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq -o DPkg::Lock::Timeout=180 update >&2
    apt-get -qq -y -o DPkg::Lock::Timeout=180 --no-install-recommends install "${missing[@]}" >&2
fi
command -v zsh fish
