#!/usr/bin/env bash
# A throw-away Slurm of one node, this machine, on free ports of the loopback interface, for tests.
#
#   slurm.sh up DIRECTORY [--accounting] [--set KEY=VALUE]...
#                                install (as root, on Debian) what is missing, start its daemons,
#                                and print the path of its slurm.conf: the tools of Slurm use it
#                                where the variable SLURM_CONF names it
#   slurm.sh restart DIRECTORY   start those of its daemons again that have died or been killed
#   slurm.sh down DIRECTORY      end its jobs and daemons, and delete DIRECTORY
#
# With --accounting there is slurmdbd with a MariaDB behind it, so that sacct answers. --set adds a
# line to slurm.conf, or replaces the one of that key. DIRECTORY/run/slurmd.pid and the like say
# which process is which. Everything but the path goes to standard error.
#
# Neither systemd nor cgroups are needed, and another Slurm or munge of this machine is not touched.
# Where there are memory cgroups (of version 1), tasks that exceed their memory are OUT_OF_MEMORY, else
# FAILED.
set -euo pipefail

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
action=$1
directory=$(realpath -m "$2")
shift 2
accounting=
settings=()
while [ $# -gt 0 ]; do
    case $1 in
        --accounting) accounting=yes ;;
        --set) settings+=("${2:?KEY=VALUE}"); shift ;;
        *) usage ;;
    esac
    shift
done
export SLURM_CONF=$directory/slurm.conf
node=localhost

fail() {
    echo "$*" >&2
    tail -n 5 "$directory"/log/*.log "$directory"/munge/*.log 2> /dev/null >&2 || true
    exit 1
}

within() {  # within SECONDS COMMAND...: wait until the command succeeds
    local end=$((SECONDS + $1))
    shift
    until "$@" > /dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}

need() {  # need PROGRAM PACKAGE [...]: install the packages whose program is not there
    local packages=() PATH=$PATH:/usr/sbin:/sbin policy=/usr/sbin/policy-rc.d
    while [ $# -gt 0 ]; do
        command -v "$1" > /dev/null || packages+=("$2")
        shift 2
    done
    [ ${#packages[@]} -gt 0 ] || return 0
    # the packages would start daemons of their own otherwise
    [ -e "$policy" ] && policy=
    [ -z "$policy" ] || { printf '#!/bin/sh\nexit 101\n' > "$policy"; chmod 755 "$policy"; }
    export DEBIAN_FRONTEND=noninteractive
    local code=0
    { apt-get -qq -o DPkg::Lock::Timeout=180 update &&
        apt-get -qq -y -o DPkg::Lock::Timeout=180 --no-install-recommends install "${packages[@]}"; } >&2 || code=$?
    [ -z "$policy" ] || rm -f "$policy"
    [ "$code" = 0 ] || fail "apt-get could not install ${packages[*]}"
}

daemon_of() {  # daemon_of NAME: print the number of that process, if it is alive
    local pid
    pid=$(cat "$directory/run/$1.pid" 2> /dev/null) || return 1
    [ -n "$pid" ] && [ "$(cat "/proc/$pid/comm" 2> /dev/null)" = "$1" ] || return 1
    ! grep -q '^State:.[ZX]' "/proc/$pid/status" && echo "$pid"
}

stop() {
    local pid
    pid=$(daemon_of "$1") || return 0
    kill "$pid"
    within 10 not daemon_of "$1" || kill -9 "$pid" || true
}

not() { ! "$@"; }

free_ports() {  # the first of three free ports in a row, below those that the system gives to clients
    local port free=
    while [ -z "$free" ]; do
        port=$((10000 + RANDOM % 20000)) free=yes
        for next in "$port" $((port + 1)) $((port + 2)); do
            ! (exec 3<> "/dev/tcp/127.0.0.1/$next") 2> /dev/null || free=
        done
    done
    echo "$port"
}

write_configuration() {
    local port host cores memory limits key line
    port=$(free_ports)
    host=$(hostname -s)
    # (not nproc, which counts what OMP_NUM_THREADS says)
    cores=$(getconf _NPROCESSORS_ONLN)
    memory=$(awk '/^MemTotal/ { print int($2 / 1024 * 0.9) }' /proc/meminfo)
    # the kernel ends what takes too much memory, where that can be had; else it is measured every second
    limits="TaskPlugin=task/none
JobAcctGatherParams=OverMemoryKill,UsePss"
    if [ -w /sys/fs/cgroup/memory/cgroup.procs ]; then limits=TaskPlugin=task/cgroup; fi
    cat > "$SLURM_CONF" << CONF
ClusterName=tests
# several of them on one machine must not have jobs of the same number: the kernel's groups are named so
FirstJobId=$((RANDOM * 1000 + 1))
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
SlurmdUser=root
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
# a job that is queued again waits until its old credential has expired: by default two minutes
AuthInfo=socket=$directory/run/munge.socket,cred_expire=5
StateSaveLocation=$directory/state
SlurmdSpoolDir=$directory/spool
SlurmctldPidFile=$directory/run/slurmctld.pid
SlurmdPidFile=$directory/run/slurmd.pid
SlurmctldLogFile=$directory/log/slurmctld.log
SlurmdLogFile=$directory/log/slurmd.log
# processes are found by their parents, which needs no cgroups
ProctrackType=proctrack/linuxproc
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
$limits
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=$((memory / cores / 4))
# a test does not wait
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
KillWait=5
SlurmdTimeout=15
ReturnToService=2
# this long it remembers jobs that have ended
MinJobAge=86400
MaxArraySize=1001
JobRequeue=1
NodeName=$node NodeHostname=$host NodeAddr=127.0.0.1 CPUs=$cores RealMemory=$memory State=UNKNOWN
PartitionName=main Nodes=$node Default=YES MaxTime=INFINITE DefaultTime=60 State=UP
CONF
    # (without the plugin's name slurmd looks for groups of version 2, and ends where there are none)
    cat > "$directory/cgroup.conf" << CONF
CgroupPlugin=cgroup/v1
ConstrainRAMSpace=yes
AllowedSwapSpace=0
CONF
    if [ -n "$accounting" ]; then
        cat >> "$SLURM_CONF" << CONF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((port + 2))
AccountingStoragePass=$directory/run/munge.socket
CONF
        (umask 077 && cat > "$directory/slurmdbd.conf") << CONF
AuthType=auth/munge
AuthInfo=socket=$directory/run/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((port + 2))
SlurmUser=root
PidFile=$directory/run/slurmdbd.pid
LogFile=$directory/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_accounting
CONF
    fi
    for line in ${settings[@]+"${settings[@]}"}; do
        key=${line%%=*}
        sed -i "/^$key=/Id" "$SLURM_CONF"
        echo "$line" >> "$SLURM_CONF"
    done
}

start_munge() {
    daemon_of munged > /dev/null && return
    chown -R munge "$directory/munge"
    # not as root, but what root's daemons use
    runuser -u munge -- /usr/sbin/munged --force --num-threads=2 --key-file="$directory/munge/key" \
        --seed-file="$directory/munge/seed" --log-file="$directory/munge/munged.log" \
        --pid-file="$directory/run/munged.pid" --socket="$directory/run/munge.socket" ||
        fail "munged does not start"
}

start_accounting() {
    local socket=$directory/run/mysql.sock database=$directory/mysql
    if ! daemon_of mariadbd > /dev/null; then
        if [ ! -d "$database" ]; then
            mkdir "$database"
            chown mysql "$database"
            mariadb-install-db --no-defaults --user=mysql --datadir="$database" --tmpdir="$database" --skip-test-db \
                --auth-root-authentication-method=socket > "$directory/log/mariadb-install.log" 2>&1 ||
                fail "the database for accounting cannot be made"
        fi
        setsid mariadbd --no-defaults --user=mysql --datadir="$database" --socket="$socket" --skip-networking \
            --pid-file="$directory/run/mariadbd.pid" --innodb-lock-wait-timeout=900 \
            --innodb-flush-log-at-trx-commit=0 < /dev/null > "$directory/log/mariadbd.log" 2>&1 &
        within 60 mariadb-admin --no-defaults --socket="$socket" ping || fail "mariadbd does not answer"
        mariadb --no-defaults --socket="$socket" -e 'CREATE DATABASE IF NOT EXISTS slurm_accounting'
    fi
    if ! daemon_of slurmdbd > /dev/null; then
        # its client library knows the socket from this variable
        MYSQL_UNIX_PORT=$socket slurmdbd || fail "slurmdbd does not start"
        within 60 sacctmgr --noheader show cluster || fail "slurmdbd does not answer"
    fi
    sacctmgr --noheader show cluster format=cluster | grep -q tests ||
        sacctmgr --immediate add cluster tests > /dev/null
}

is_ready() { sinfo --noheader --nodes=$node --format=%T | grep -qE '^(idle|mixed|allocated|completing)$'; }

start() {
    start_munge
    if grep -q '^AccountingStorageType=accounting_storage/slurmdbd' "$SLURM_CONF"; then start_accounting; fi
    daemon_of slurmctld > /dev/null || slurmctld -i || fail "slurmctld does not start"
    within 30 bash -c 'scontrol ping | grep -q "is UP"' || fail "slurmctld does not answer"
    daemon_of slurmd > /dev/null || slurmd -N $node || fail "slurmd does not start"
    # a node that was found dead says so until it is told not to
    if ! within 10 is_ready; then
        scontrol update nodename=$node state=resume >&2 || true
        within 60 is_ready || fail "the node is $(sinfo --noheader --nodes=$node --format=%T), not idle"
    fi
}

up() {
    [ "$(id -u)" = 0 ] || { echo "Slurm's daemons start jobs as their users, so they must be root's" >&2; exit 1; }
    [ ! -e "$directory" ] || { echo "$directory exists already" >&2; exit 1; }
    need munged munge sbatch slurm-client slurmctld slurmctld slurmd slurmd
    if [ -n "$accounting" ]; then need slurmdbd slurmdbd mariadbd mariadb-server; fi
    mkdir -p "$directory"/{log,munge,run,spool,state}
    chmod 755 "$directory"
    chmod 1777 "$directory/run"  # daemons of three users put their numbers and sockets there
    chmod 700 "$directory/munge"
    (umask 077 && head -c 1024 /dev/urandom > "$directory/munge/key")
    write_configuration
    start >&2
    echo "$SLURM_CONF"
}

restart() { start >&2; }

down() {
    local name
    if daemon_of slurmctld > /dev/null; then
        squeue --noheader --format=%A | sort -u | xargs -r scancel || true
        within 15 bash -c '[ -z "$(squeue --noheader)" ]' || true
    fi
    for name in slurmd slurmctld slurmdbd mariadbd munged; do stop $name; done
    rm -rf -- "$directory"
}

case $action in
    up | restart | down) "$action" ;;
    *) usage ;;
esac
