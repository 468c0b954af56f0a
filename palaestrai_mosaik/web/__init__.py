"""Pages that show runs and designs: served live, in a notebook, or as one file that needs no network.

All three show the same views, which are JavaScript modules in ``static/``. A view asks for *resources*: JSON documents
by path (``runs``, ``run/ID/curves``), which functions in ``data/`` read from the store. The server (:mod:`.server`,
extra ``web``) answers requests for them; a page in one file (:mod:`.page`) carries the ones that it shows.
"""
