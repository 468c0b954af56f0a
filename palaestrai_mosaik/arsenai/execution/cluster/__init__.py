"""Executes runs of a design folder on a cluster, with Slurm's job arrays or Parsl's pilot jobs.

A *submission* (:mod:`.submission`) assigns runs to *tasks*. It is stored in the folder, so a task needs no other input.
All tasks work in the same way on their nodes (:mod:`.node`): each run records to its own store, and its record is
written to ``jobs/``. Records take precedence over the states of tasks that a *scheduler* (:mod:`.scheduler`) reports.
"""
