"""The section ``execution`` of designs: clusters, what may be named, and where faults are told."""

from __future__ import annotations

import textwrap

import pytest

from palaestrai_mosaik.arsenai.design.load import loads
from palaestrai_mosaik.core.errors import DocumentError

DESIGN = """\
uid: d
seed: 1
base:
  schedule:
    - only:
        environments: []
        agents: []
        simulation: {name: vanilla}
"""


def load(execution, **more):
    text = DESIGN + "execution:\n" + textwrap.indent(textwrap.dedent(execution), "  ")
    return loads(text + "".join(f"{key}: {value}\n" for key, value in more.items()), "d.yml")


def test_what_is_said_of_clusters_is_kept_and_no_part_of_the_design():
    spec = load("""\
        executor: slurm
        allow_modules: [mine.agents]
        slurm: {partition: short, time: 2:30:00, memory: 4G, cpus: 4, qos: null}
        parsl:
          provider: pbspro
          options: {queue: short}
          prologue: |
            module load python
            source venv/bin/activate
    """)
    assert spec.resolved["execution"] == {
        "executor": "slurm",
        "allow_modules": ["mine.agents"],
        "slurm": {"partition": "short", "time": "2:30:00", "memory": "4G", "cpus": 4},
        "parsl": {
            "provider": "pbspro",
            "options": {"queue": "short"},
            "prologue": "module load python\nsource venv/bin/activate\n",
        },
    }
    assert spec.hash == loads(DESIGN, "d.yml").hash


def test_every_fault_is_told_with_its_line():
    with pytest.raises(DocumentError) as error:
        load("""\
            executor: slrum
            allow_modules: [mine, "os;system"]
            slurm:
              partiton: short
              time: 1h
              memory: 4GB
              cpus: 0
              directives:
                - --constraint=fast
                - --array=1-3
              qos: "a\\nb"
            parsl:
              provider: pbs
              options: {1: 2}
              walltime: "30"
              address: node7
        """)
    told = [str(problem) for problem in error.value.problems]
    assert told == [
        "d.yml:10: execution.executor: executor is the string 'slrum' (did you mean 'slurm'?); allowed: "
        "local, inline, slurm, parsl",
        "d.yml:11: execution.allow_modules.1: allow_modules must hold names of modules such as "
        "mypackage.agents, 'cmd:' or 'connect:', found the string 'os;system'",
        "d.yml:13: execution.slurm.partiton: unknown key 'partiton' in slurm (did you mean 'partition'?); "
        "allowed: partition, time, memory, cpus, account, qos, throttle, processes, runs_per_task, requeue, "
        "warning, directives, prologue, python",
        "d.yml:14: execution.slurm.time: time must be a time as Slurm takes it: minutes, hours:minutes:seconds "
        "or days-hours:minutes:seconds, found the string '1h'",
        "d.yml:15: execution.slurm.memory: memory must be a number with K, M, G or T, such as 4G, found the "
        "string '4GB'",
        "d.yml:16: execution.slurm.cpus: cpus must be an integer of at least 1, found the number 0",
        "d.yml:19: execution.slurm.directives.1: directives cannot hold --array: arsenai writes it itself, "
        "found the string '--array=1-3'",
        "d.yml:20: execution.slurm.qos: qos must be a name on one line, found the string 'a\\nb'",
        "d.yml:22: execution.parsl.provider: provider is the string 'pbs' (did you mean 'pbspro'?); allowed: "
        "local, slurm, pbspro, torque, lsf, grid_engine, condor, kubernetes",
        "d.yml:23: execution.parsl.options.1: options has keys that are strings, found the number 1",
        "d.yml:24: execution.parsl.walltime: walltime must be a time of at least a minute, such as 02:30:00, "
        "found the string '30'",
        "d.yml:25: execution.parsl.address: address must be an IP address, found the string 'node7'",
    ]


@pytest.mark.parametrize("section", ["slurm: 3", "parsl: [local]", "allow_modules: 3"])
def test_what_is_no_section(section):
    with pytest.raises(DocumentError, match="must be a"):
        load(section)
