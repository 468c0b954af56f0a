"""Pages that show runs and designs: live from a server, in a notebook, or as one file that needs no network.

All three show the same views, which are JavaScript modules in ``static/``. A view asks for *resources*: JSON documents
by path (``runs``, ``run/ID/curves``), which functions in ``data/`` make from what the store has. The server
(:mod:`.server`, extra ``web``) answers with them; a page in one file (:mod:`.page`) carries those that it shows.
"""
