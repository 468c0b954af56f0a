"""What can be asked of a store; :class:`~palaestrai_mosaik.store.Store` offers all of it under one name.

=========================  ===================================================================
:mod:`.lookup`             which run, phase and folder a name means; what all queries share
:mod:`.runs`               runs, phases, episodes, outcomes, errors, warnings, documents, streams
:mod:`.members`            environments, agents, channels, bodies
:mod:`.trajectories`       steps, states of environments, statistics
:mod:`.body_episodes`      one row per episode of each body
:mod:`.many_runs`          one question about all runs of a design
:mod:`.brains`             dumps of brains that are in the database
:mod:`.export`             everything about one run, as plain files
=========================  ===================================================================
"""
