#!/usr/bin/env bash
# Chromium and its driver, for the tests that look at a page in a real browser.
#
#   chromium.sh     install (as root, on Debian) what is missing, and print the paths of the
#                   browser and of its driver, a line each
#
# Everything but the paths goes to standard error.
set -euo pipefail

find_program() {  # the first of the names that is there
    local name
    for name in "$@"; do
        if command -v "$name"; then return; fi
    done
    return 1
}

find_both() {
    find_program chromium chromium-browser google-chrome &&
        find_program chromedriver /usr/lib/chromium/chromedriver /usr/lib/chromium-browser/chromedriver
}

install_both() {
    [ "$(id -u)" = 0 ] ||
        { echo "no Chromium with driver found; as root: apt-get install chromium chromium-driver" >&2; exit 1; }
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq -o DPkg::Lock::Timeout=180 update >&2
    apt-get -qq -y -o DPkg::Lock::Timeout=180 --no-install-recommends install \
        chromium chromium-driver fonts-dejavu-core >&2
}

[ $# = 0 ] || { sed -n '2,/^set/{s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
paths=$(find_both) || { install_both; paths=$(find_both); }
echo "$paths"
