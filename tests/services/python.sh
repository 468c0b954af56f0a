#!/usr/bin/env bash
# A Python of another version than the one at hand, for what needs a newer one.
#
#   python.sh VERSION...         print the path of an interpreter of the first VERSION (as 3.13) that is on
#                                this machine: on PATH, of pyenv, or of uv
#
# The virtual environments that are made with it need its module ensurepip, so one without it is none.
set -euo pipefail

[ $# -ge 1 ] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" >&2; exit 2; }

candidates() {  # of a version
    type -ap "python$1" || true
    printf '%s\n' "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1"[.-]*/bin/python \
        "${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}"/cpython-"$1"[.-]*/bin/python
}

for version in "$@"; do
    while read -r candidate; do
        # what is on PATH may be a shim that only says where the interpreter would be
        "$candidate" - "$version" 2> /dev/null << 'END' && exit
import ensurepip
import sys

if sys.version_info[:2] != tuple(map(int, sys.argv[1].split("."))):
    sys.exit(1)
print(sys.executable)
END
    done < <(candidates "$version")
done
echo "there is no Python $(sed 's/ / or /g' <<< "$*") on this machine: neither on PATH nor of pyenv or uv" >&2
exit 1
