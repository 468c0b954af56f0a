"""Runs of a design folder on a cluster: Slurm's job arrays, and Parsl's pilot jobs.

A *submission* (:mod:`.submission`) says which *task* executes which runs; it lies in the folder, so a
task needs nothing else. What a task does on its node is the same for all (:mod:`.node`): the runs go
into stores of their own, and their records into ``jobs/``. A *scheduler* (:mod:`.scheduler`) has the
second word about what became of a task, the records have the first.
"""
