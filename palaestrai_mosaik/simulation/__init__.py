"""One episode as one run of a mosaik world, in which environments and agents are simulators.

``episode`` runs an episode in its world, which ``world_builder`` builds: the only owner of ``mosaik.AsyncWorld``.
``bridge`` has our mosaik simulators, ``coordinator`` determines the order of actions and the end, ``body`` is an agent
in a world, ``connections`` the wiring between vectors, ``conditions`` the termination conditions, ``world_graph``
draws a world, ``scheduler`` executes mosaik's schedule, and ``mosaik_internals`` lists what all other code
corrects in mosaik, by release.
"""
