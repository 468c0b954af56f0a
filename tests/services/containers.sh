#!/usr/bin/env bash
# A builder of container images and a base image with Python, both without a daemon and without a registry of images.
#
#   containers.sh up DIRECTORY     install (as root, on Debian) what is missing: buildah, and debootstrap for the base
#                                  image localhost/python; print DIRECTORY, where all images are
#   containers.sh down DIRECTORY   delete DIRECTORY
#
# Everything but the path goes to standard error. Images are plain folders (no overlay), so it also works in a container.
set -euo pipefail

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
[ $# = 2 ] || usage
directory=$(realpath -m "$2")

builder() { buildah --root "$directory/images" --runroot "$directory/run" --storage-driver vfs "$@"; }

install_programs() {
    command -v buildah > /dev/null && command -v debootstrap > /dev/null && return
    [ "$(id -u)" = 0 ] || { echo "as root: apt-get install buildah debootstrap" >&2; exit 1; }
    apt-get -qq -o DPkg::Lock::Timeout=180 update
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=180 --no-install-recommends install \
        buildah debootstrap
}

make_base() {
    local container
    mkdir -p "$directory"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates stable "$directory/base"
    container=$(builder from scratch)
    builder add --quiet "$container" "$directory/base" /
    builder commit --quiet "$container" localhost/python
    builder rm "$container"
    rm -rf "$directory/base"
}

case $1 in
    up)
        install_programs >&2
        builder inspect --type image localhost/python > /dev/null 2>&1 || make_base >&2
        echo "$directory"
        ;;
    down) rm -rf "$directory" ;;
    *) usage ;;
esac
