"""Queries of a store; :class:`~palaestrai_mosaik.store.Store` offers all of them.

=========================  ===================================================================
:mod:`.lookup`             resolves names of runs, phases and folders, for all queries
:mod:`.runs`               runs, phases, episodes, outcomes, errors, warnings, documents, streams
:mod:`.members`            environments, agents, channels, bodies
:mod:`.trajectories`       steps, states of environments, statistics
:mod:`.body_episodes`      one row per episode of each body
:mod:`.many_runs`          one query for all runs of a design
:mod:`.columns`            parameters that differ, and metrics, of all runs
:mod:`.brains`             dumps of brains in the database
:mod:`.export`             all data of one run, as plain files
=========================  ===================================================================
"""
