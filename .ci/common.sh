# What the scripts of this folder share; each sources it, and is then in the root of the checkout.
#
#   PYTHON      the interpreter of the environments that are made (default: python3)
#   OUTCOMES    the file that tests append what ran to (default: outcomes.jsonl in the folder of CI_WORK)
#   CI_WORK     a folder for logs, services and builds (default: build/ci)
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.."

PYTHON=$(command -v "${PYTHON:-python3}")
PYTHON=$("$PYTHON" -c 'import sys; print(sys.executable)') # (a shim on PATH needs more than its own file)
CI_WORK=$(realpath -m "${CI_WORK:-build/ci}")
OUTCOMES=$(realpath -m "${OUTCOMES:-$CI_WORK/outcomes.jsonl}")
# (a test that takes ten minutes hangs)
PYTEST_ADDOPTS="--outcomes=$OUTCOMES --timeout=600"
export PYTEST_ADDOPTS PYTHON CI_WORK OUTCOMES CI=${CI:-true} OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PIP_DISABLE_PIP_VERSION_CHECK=1
unset VIRTUAL_ENV PYTHONPATH PYTHONDONTWRITEBYTECODE
mkdir -p "$CI_WORK"
chmod 755 "$CI_WORK" # the server's user must get through

# every program of this machine but those of the parts that a newcomer does not have
newcomers_programs() {
    local folder program
    rm -rf "$CI_WORK/programs"
    mkdir "$CI_WORK/programs"
    for folder in ${PATH//:/ }; do
        for program in "$folder"/*; do
            case ${program##*/} in
                *chrom* | *postgres* | psql | pg_* | initdb | slurm* | sbatch | srun | squeue | scancel | sacct | \
                    scontrol | sinfo | munge* | palaestrai* | arsenai) continue ;;
            esac
            [ -x "$program" ] && [ ! -e "$CI_WORK/programs/${program##*/}" ] &&
                ln -s "$program" "$CI_WORK/programs/${program##*/}"
        done
    done
    echo "$CI_WORK/programs"
}

# run the tests of an environment: suite NAME COMMAND...
suite() {
    "${@:2}" 2>&1 | tee "$CI_WORK/tests-$1.log"
}

# where only our own packages and those that we need are at hand: must_not_warn NAME
must_not_warn() {
    if grep -q '= warnings summary =' "$CI_WORK/tests-$1.log"; then
        echo "the suite must not warn" >&2
        exit 1
    fi
}
