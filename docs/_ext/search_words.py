"""Entries of the index, so that the search of the site shows the right page first.

Sphinx's search gives a page 5 points for words in its text and 15 for words in its headings, and sorts equal pages by
name. An entry of the index has up to 100 points. So entries are made here:

* for the words of ``search_words`` in ``conf.py``, a list for each page;
* for the messages in bold on the page of messages (``search_messages``), whole, and in the parts between
  semicolons and the dots that stand for names. They lead to their paragraph, which the results then show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docutils import nodes
from message_entries import entries_of
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class SearchWords(SphinxTransform):
    """Adds the entries to a document, before Sphinx reads its index."""

    default_priority = 700

    def apply(self, **kwargs: Any) -> None:
        page = self.env.docname
        if words := self.config.search_words.get(page):
            self.document.insert(0, _index(words, ""))
        if page == self.config.search_messages:
            for paragraph, messages in _messages(self.document):
                anchor = nodes.make_id(messages[0])[:60].strip("-")
                paragraph["ids"].append(anchor)
                names = [name for message in messages for name in entries_of(message)]
                paragraph.insert(0, _index(names, anchor))


def _index(names: list[str], anchor: str) -> addnodes.index:
    # other entries than main ones stand below all other results
    return addnodes.index(entries=[("single", name, anchor, "main", None) for name in names])


def _messages(document: nodes.document) -> Iterator[tuple[nodes.paragraph, list[str]]]:
    for paragraph in document.findall(nodes.paragraph):
        strong = [one for one in paragraph.findall(nodes.strong) if one.next_node(nodes.literal)]
        bold = [" ".join(one.astext().split()) for one in strong]
        if bold:
            yield paragraph, bold


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("search_words", {}, "env", dict)
    app.add_config_value("search_messages", "", "env", str)
    app.add_transform(SearchWords)
    return {"parallel_read_safe": True}
