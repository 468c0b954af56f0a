"""The search of the built site finds what people look for: ``make site`` asks it, in Node.js with the site's own scripts.

The page of each word of ``search_words`` in ``docs/conf.py``, and the page of messages for each message and each part of
one, must be the first result:

    python -m tests.support.site_search docs/_build/html
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .pages import ROOT, messages

sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from message_entries import entries_of

#: answers a list of queries on standard input with the pages that the search of the site in argv[2] shows, best first
_ASK = r"""
const fs = require("fs"), vm = require("vm");
const site = process.argv[1];
const page = {
  document: { readyState: "loading", addEventListener() {}, getElementById: () => null },
  localStorage: { setItem() {} }, SPHINX_HIGHLIGHT_ENABLED: false, _ready() {}, _: (text) => text,
};
page.window = page;
vm.createContext(page);
for (const name of ["_static/searchtools.js", "_static/language_data.js", "searchindex.js"]) {
  // what it removes from the page is not there
  const text = fs.readFileSync(`${site}/${name}`, "utf8").replace("_removeChildren(document", "(() => {})(document");
  vm.runInContext(text, page, { filename: name });
}
page.queries = JSON.parse(fs.readFileSync(0, "utf8"));
const found = vm.runInContext(
  "queries.map((one) => Search._performSearch(...Search._parseQuery(one)).reverse().map((result) => result[0]))", page);
console.log(JSON.stringify(found));
"""


def search_words() -> dict[str, list[str]]:
    """Return ``search_words`` of ``docs/conf.py``, which cannot be imported without Sphinx."""
    tree = ast.parse((ROOT / "docs" / "conf.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "search_words":
            words: dict[str, list[str]] = ast.literal_eval(node.value)
            return words
    raise AssertionError("docs/conf.py has no search_words")


def message_entries() -> list[str]:
    """Return the index entries of all messages on the page of messages."""
    return list(dict.fromkeys(entry for message in messages() for entry in entries_of(message)))


def expected() -> dict[str, str]:
    """Return query -> the page that must be the first result."""
    words = {word: page for page, many in search_words().items() for word in many}
    return dict.fromkeys(message_entries(), "troubleshooting") | words


def answers(site: Path, queries: Sequence[str]) -> list[list[str]]:
    """Return the pages that the search of the site shows for each query, best first."""
    asked = json.dumps(list(queries))
    done = subprocess.run(
        ["node", "-e", _ASK, str(site)], input=asked, capture_output=True, text=True, check=True
    )
    return list(json.loads(done.stdout))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the queries that lead elsewhere; return the exit code."""
    (site,) = sys.argv[1:] if arguments is None else arguments
    if shutil.which("node") is None:
        print("the search of the site was not tried: there is no Node.js")
        return 0
    wanted = expected()
    wrong = 0
    for (query, page), found in zip(wanted.items(), answers(Path(site), list(wanted)), strict=True):
        if found[:1] != [page]:
            print(f"the search for {query!r} shows {found[:3]} first, not {page}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
