"""One episode as one run of a mosaik world, in which environments and agents are simulators.

``world`` builds the world (the only owner of ``mosaik.AsyncWorld``), ``bridge`` has our
mosaik simulators, ``coordinator`` says who acts when and when it ends, ``body`` is an agent
in a world, ``handles`` the wiring between vectors, ``conditions`` the termination
conditions, ``graph`` draws a world, ``scheduler`` executes mosaik's schedule, and
``mosaik_internals`` holds all else that leans on undocumented parts of mosaik.
"""
