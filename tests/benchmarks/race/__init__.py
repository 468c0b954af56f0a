"""A race between palaestrAI and this package: the same documents on both, in turn.

``__main__.py`` is the command. :mod:`.command` reads its options and orders the measurements,
:mod:`.contestants` makes the virtual environments and knows each side's commands, :mod:`.documents`
has what is run, :mod:`.measure` watches a command and all processes that it starts, :mod:`.machine`
tells how noisy the machine is, :mod:`.failures` plants errors, :mod:`.limits` finds our own upper bounds,
:mod:`.figures` makes figures of measurements and :mod:`.report` writes the table and the picture.
``parts`` holds what the documents name: some is for both sides, some the same written for each.
"""
