#!/usr/bin/env bash
# A throw-away PostgreSQL on a free port of the loopback interface, for tests.
#
#   postgres.sh up DIRECTORY     install (as root, on Debian) what is missing, start the
#                                server, and print its SQLAlchemy URL
#   postgres.sh stop DIRECTORY   stop it: those who are connected are cut off
#   postgres.sh kill DIRECTORY   kill all of its processes, as a power failure would
#   postgres.sh start DIRECTORY  start it again, on its port
#   postgres.sh down DIRECTORY   stop it and delete DIRECTORY
#
# Everything but the URL goes to standard error. The server keeps nothing safe: no fsync.
set -euo pipefail

usage() { sed -n '2,/^set/{s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
[ $# = 2 ] || usage
directory=$(realpath -m "$2")

find_programs() {  # the newest folder that holds initdb and pg_ctl
    local folder
    for folder in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV) \
        $(command -v initdb | xargs -r dirname); do
        if [ -x "$folder/initdb" ] && [ -x "$folder/pg_ctl" ]; then echo "$folder"; return; fi
    done
    return 1
}

install_server() {
    [ "$(id -u)" = 0 ] || { echo "no PostgreSQL found; as root: apt-get install postgresql" >&2; exit 1; }
    # Debian's package would start a server of its own otherwise
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] ||
        echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq -o DPkg::Lock::Timeout=180 update >&2
    apt-get -qq -y -o DPkg::Lock::Timeout=180 --no-install-recommends install postgresql >&2
}

programs=$(find_programs) || { install_server; programs=$(find_programs); }

# PostgreSQL refuses to be run by root
owner=$(id -un)
if [ "$(id -u)" = 0 ]; then owner=postgres; fi
as_owner() { (cd / && if [ "$owner" = "$(id -un)" ]; then "$@"; else runuser -u "$owner" -- "$@"; fi); }

free_port() {
    local port
    while port=$((20000 + RANDOM % 12000)); (exec 3<> "/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo "$port"
}

start_on() {  # PORT
    as_owner "$programs/pg_ctl" -D "$directory/data" -l "$directory/data/server.log" -s -w -t 30 start \
        -o "-h 127.0.0.1 -p $1 -k $directory -c fsync=off -c full_page_writes=off" >&2
}

up() {
    local password port
    [ ! -e "$directory" ] || { echo "$directory exists already" >&2; exit 1; }
    mkdir -p "$directory"
    chmod 755 "$directory"
    password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    (umask 077 && echo "$password" > "$directory/password")
    chown -R "$owner" "$directory"
    as_owner "$programs/initdb" -D "$directory/data" -U tests --pwfile="$directory/password" \
        --auth=scram-sha-256 -E UTF8 --locale=C --no-sync > "$directory/initdb.log"
    for _ in 1 2 3; do  # another process may take the port in between
        port=$(free_port)
        start_on "$port" && break
        port=
    done
    [ -n "$port" ] || { tail "$directory/data/server.log" >&2; exit 1; }
    echo "$port" > "$directory/port"
    echo "postgresql+psycopg://tests:$password@127.0.0.1:$port/postgres"
}

start() { start_on "$(cat "$directory/port")"; }

stop() {
    if [ -s "$directory/data/postmaster.pid" ]; then
        as_owner "$programs/pg_ctl" -D "$directory/data" -m fast -w -s stop
    fi
}

kill_all() {
    local server processes
    server=$(head -n 1 "$directory/data/postmaster.pid")
    processes=$(ps -o pid= -p "$server" --ppid "$server")
    # shellcheck disable=SC2086  # one word for each process
    kill -KILL $processes 2>/dev/null || true
    # shellcheck disable=SC2086  # (a process that nobody waits for is a zombie, and holds nothing)
    while ps -o stat= -p $processes | grep -qv '^Z'; do sleep 0.05; done
    # (it would believe a zombie to be another server)
    rm -f "$directory/data/postmaster.pid" "$directory"/.s.PGSQL.*
}

down() {
    stop
    rm -rf -- "$directory"
}

case $1 in
    up | stop | start | down) "$1" ;;
    kill) kill_all ;;
    *) usage ;;
esac
