"""Answers of the page's server: each has a tag, and those about finished runs are computed once."""

from __future__ import annotations

import gzip
import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import NamedTuple

from palaestrai_mosaik import __version__

from .data import get
from .encoding import to_json
from .resources import Source, resource

#: longer answers are compressed
COMPRESSED_FROM = 2_000
#: bytes of answers about finished runs that are kept
MEMORY = 64 * 2**20


class Answer(NamedTuple):
    """A resource as bytes.

    Attributes:
        tag: the entity tag: answers with the same tag have the same content.
        content: JSON, compressed if ``packed``; ``None`` if the browser already has it.
        packed: whether ``content`` is compressed.
    """

    tag: str
    content: bytes | None
    packed: bool = False


class Answers:
    """Answers requests for resources.

    What a finished run has recorded never changes. Its fixed resources follow from its uid, the query and the releases
    of the package and of the page, so their tag is known before they are computed, also after a restart of the server.
    The tags of other resources follow from their content.

    Args:
        source: provides the resources.
        release: changes with the files of the page.
        memory: bytes of answers that are kept; the ones that were not used for longest are dropped first.
    """

    def __init__(self, source: Source, release: str, memory: int = MEMORY):
        self._source = source
        self._release = f"{__version__} {release}"
        self._memory = memory
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Answer] = OrderedDict()
        self._size = 0

    def get(
        self, path: str, query: Mapping[str, str], *, packed: bool = False, tags: Collection[str] = ()
    ) -> Answer:
        """Return the resource at ``path``.

        Args:
            path: the path.
            query: the query.
            packed: whether the browser accepts compressed answers.
            tags: the tags of the answers that the browser has.

        Raises:
            ResourceError: the path is unknown, or a value of the query is invalid.
            StoreError: the run, phase, agent, environment or column does not exist.
        """
        key = self._key(path, query)
        if key is None:
            content = to_json(get(self._source, path, query))
            return _unless_current(_packed(sha256(content).hexdigest(), content, packed), tags)
        # the form of an answer is part of a strong tag
        tag = _tag(key, packed)
        if tag in tags:
            return Answer(tag, None)
        with self._lock:
            answer = self._kept.get(tag)
            if answer is not None:
                self._kept.move_to_end(tag)
                return answer
        answer = _packed(key, to_json(get(self._source, path, query)), packed)
        self._keep(answer._replace(tag=tag))
        return answer._replace(tag=tag)

    def _key(self, path: str, query: Mapping[str, str]) -> str | None:
        """Return what identifies the content of a fixed resource of a finished run; ``None`` for other resources."""
        function, variables = resource.find(path)
        if function not in resource.fixed:
            return None
        run = self._source.store.find_instance(None, variables[0])
        if run.status != "finished":
            return None
        parts = (self._release, run.uid, function.__name__, variables[1:], sorted(query.items()))
        return sha256(json.dumps(parts).encode("utf-8", "backslashreplace")).hexdigest()

    def _keep(self, answer: Answer) -> None:
        size = len(answer.content or b"")
        if size > self._memory // 4:
            return
        with self._lock:
            before = self._kept.pop(answer.tag, None)
            self._kept[answer.tag] = answer
            self._size += size - (0 if before is None else len(before.content or b""))
            while self._size > self._memory:
                _, oldest = self._kept.popitem(last=False)
                self._size -= len(oldest.content or b"")


def _unless_current(answer: Answer, tags: Collection[str]) -> Answer:
    return answer._replace(content=None) if answer.tag in tags else answer


def _packed(key: str, content: bytes, packed: bool) -> Answer:
    packed = packed and len(content) > COMPRESSED_FROM
    return Answer(_tag(key, packed), gzip.compress(content, 1, mtime=0) if packed else content, packed)


def _tag(key: str, packed: bool) -> str:
    return f'"{key[:32]}{"-gzip" if packed else ""}"'
