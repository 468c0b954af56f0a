"""Names, tags and notes of runs: what they may contain, and how they are set, found and read.

Labels are for people: no document, hash or digest has them, and :mod:`.verify` does not check them. A name is not
unique, because repetitions of an experiment often share one, and stores with equal names can be merged; where a name
selects a run, it must be that of a single run.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from palaestrai_mosaik.core.errors import StoreError, did_you_mean
from palaestrai_mosaik.core.printing import count

from .database import reads
from .models import Instance, Label, utc_now
from .query.lookup import Lookup, in_chunks

#: the maximum lengths in characters, and the maximum number of a run's tags
NAME_LENGTH, TAG_LENGTH, NOTE_LENGTH, MOST_TAGS = 120, 60, 10_000, 50
#: the word that selects the newest run
_LATEST = "latest"


class Labels(NamedTuple):
    """The name, tags and note of a run; ``None``: no name, no note."""

    name: str | None = None
    tags: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True)
class LabelChange:
    """A change of the labels of runs. Texts are normalised (Unicode NFC, without blanks around them).

    Args:
        name: the new name; ``""`` removes the name, ``None`` keeps it.
        tags: tags to add.
        untag: tags to remove.
        note: the new note, of any number of lines; ``""`` removes the note, ``None`` keeps it.

    Raises:
        StoreError: a text is too long, has control characters or, for names and tags, several lines; a tag is empty,
            has a comma, or is both added and removed; or the name is ``latest``, which selects the newest run.
    """

    name: str | None = None
    tags: str | Sequence[str] = ()
    untag: str | Sequence[str] = ()
    note: str | None = None

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "name", None if self.name is None else _line("name", self.name, NAME_LENGTH))
        if self.name == _LATEST:
            raise StoreError(f"a run cannot have the name {_LATEST!r}, which selects the newest run")
        for name in ("tags", "untag"):
            texts = getattr(self, name)
            each = [texts] if isinstance(texts, str) else texts
            set_field(self, name, tuple(dict.fromkeys(map(_tag, each))))
        both = [tag for tag in self.tags if tag in self.untag]
        if both:
            raise StoreError(f"the tag {both[0]!r} is both added and removed")
        set_field(self, "note", None if self.note is None else _note(self.note))

    def __bool__(self) -> bool:
        """Whether anything is changed."""
        return self != NO_CHANGE

    def applied(self, labels: Labels) -> Labels:
        """Return the changed labels.

        Raises:
            StoreError: there would be too many tags.
        """
        tags = sorted({*labels.tags, *self.tags} - {*self.untag})
        if len(tags) > max(MOST_TAGS, len(labels.tags)):
            raise StoreError(f"a run can have {MOST_TAGS} tags, not {len(tags)}")
        name = labels.name if self.name is None else self.name or None
        note = labels.note if self.note is None else self.note or None
        return Labels(name, tuple(tags), note)


def _line(what: str, text: str, most: int) -> str:
    """Normalise a name or a tag."""
    text = unicodedata.normalize("NFC", text).strip()
    _check_length(what, text, most)
    if not text.isprintable():
        raise StoreError(f"a {what} is one line without control characters, not {text!r}")
    return text


def _tag(text: str) -> str:
    tag = _line("tag", text, TAG_LENGTH)
    if not tag or "," in tag:
        # lists of tags are written with commas
        raise StoreError(f"a tag is a text without commas, not {text!r}")
    return tag


def _note(text: str) -> str:
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n")).strip()
    _check_length("note", text, NOTE_LENGTH)
    # emoji are joined by format characters (Cf), which are escaped where a note is printed
    wrong = [
        letter for letter in text if unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\n\t"
    ]
    if wrong:
        raise StoreError(f"a note has no control characters such as {wrong[0]!r}")
    return text


def _check_length(what: str, text: str, most: int) -> None:
    if len(text) > most:
        raise StoreError(f"a {what} has up to {most:,} characters, not {len(text):,}")


#: keeps all labels
NO_CHANGE = LabelChange()


def labels_of(label: Label) -> Labels:
    """Return the labels in a row, without values of a wrong type: the store may come from elsewhere."""
    tags = label.tags if isinstance(label.tags, list) else []
    name, note = (text if isinstance(text, str) else None for text in (label.name, label.note))
    return Labels(name, tuple(sorted({tag for tag in tags if isinstance(tag, str)})), note)


def set_labels(row: Label, labels: Labels) -> None:
    """Write ``labels`` into a row, with the time if they differ from those in it."""
    labels = labels._replace(tags=tuple(sorted(labels.tags)))
    if labels != labels_of(row):
        row.name, row.tags, row.note, row.changed = labels.name, list(labels.tags), labels.note, utc_now()


def labels_by_run(session: Session, runs: Collection[str] | None = None) -> dict[str, Labels]:
    """Select the labels of the instances with these uids, or of all; runs without labels are left out."""
    if runs is None:
        return {row.run: labels_of(row) for row in session.scalars(select(Label))}
    chunks = (select(Label).where(Label.run.in_(chunk)) for chunk in in_chunks(sorted(runs)))
    return {row.run: labels_of(row) for chunk in chunks for row in session.scalars(chunk)}


class LabelQueries(Lookup):
    """Reads and sets the labels of runs."""

    @reads
    def labels(self, run: str) -> Labels:
        """Return the name, tags and note of a run.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.

        Raises:
            StoreError: there is no such run.
        """
        with self.database.reading() as session:
            uid = self._find(session, run)[1]
            return labels_by_run(session, [uid]).get(uid, Labels())

    @reads
    def changed_labels(self, since: datetime) -> list[tuple[int, datetime]]:
        """Return the ids of the runs whose labels were changed after ``since``, with the times of the changes."""
        with self.database.reading() as session:
            statement = select(Instance.id, Label.changed).join(Label, Label.run == Instance.uid)
            return [(row[0], row[1]) for row in session.execute(statement.where(Label.changed > since))]

    def label(
        self,
        runs: str | Sequence[str],
        *,
        name: str | None = None,
        tags: str | Sequence[str] = (),
        untag: str | Sequence[str] = (),
        note: str | None = None,
    ) -> dict[str, Labels]:
        """Set the name, tags and note of runs.

        Labels are no part of a run's document, hash or digests. Several processes may label at once: tags add up, and
        the last name and note are kept. A name may be that of several runs, but then selects none of them.

        Args:
            runs: a run, or several, in any form that :meth:`find_run` accepts.
            name: the name of the run; ``""`` removes it, ``None`` keeps it. Up to 120 characters on one line.
            tags: a tag to add, or several; up to 60 characters each, without commas. A run has up to 50.
            untag: a tag to remove, or several; runs without it stay as they are.
            note: a note of up to 10,000 characters and any number of lines; ``""`` removes it, ``None`` keeps it.

        Returns:
            The labels of each run after the change, by uid.

        Raises:
            StoreError: there is no such run, none of the runs has a tag to remove, a text is not allowed, several runs
                would get one name, or the store is open for reading only. Then nothing is changed.
        """
        change = LabelChange(name, tags, untag, note)
        return self.change_labels([runs] if isinstance(runs, str) else runs, change)

    def change_labels(self, runs: Sequence[str], change: LabelChange) -> dict[str, Labels]:
        """Apply a change to the labels of runs; see :meth:`label`."""
        uids = list(dict.fromkeys(self.find_run(run) for run in runs))
        self._check(uids, change)

        def write(session: Session) -> dict[str, Labels]:
            lock_labels(session)
            result: dict[str, Labels] = {}
            for uid in uids:
                if session.scalar(select(Instance.id).where(Instance.uid == uid)) is None:
                    raise StoreError(f"run {uid} was deleted")
                row = session.get(Label, uid)
                if row is None:
                    row = Label(run=uid, tags=[], changed=utc_now())
                    session.add(row)
                result[uid] = change.applied(labels_of(row))
                set_labels(row, result[uid])
            return result

        return self.database.write(write)

    def _check(self, uids: Sequence[str], change: LabelChange) -> None:
        """Raise :class:`StoreError` if the change does not suit these runs."""
        if change.name and len(uids) > 1:
            raise StoreError(
                f"a name selects one run, and there are {count(len(uids), 'run')}: use a tag for several"
            )
        if change.name and self._has_instance(change.name):
            raise StoreError(f"a run cannot have the name {change.name!r}, which is the id of a run")
        if change.untag:
            present = {tag for uid in uids for tag in self.labels(uid).tags}
            for tag in change.untag:
                if tag not in present:
                    which = f"run {uids[0]} has no tag" if len(uids) == 1 else "none of the runs has the tag"
                    raise StoreError(f"{which} {tag!r}{did_you_mean(tag, sorted(present))}")

    @reads
    def _has_instance(self, uid: str) -> bool:
        with self.database.reading() as session:
            return session.scalar(select(Instance.id).where(Instance.uid == uid)) is not None


# as in database.py; without it, two processes on PostgreSQL would both read, and the last one would win
_POSTGRESQL_LOCK = 0x70A1E57C


def lock_labels(session: Session) -> None:
    """Lock the labels of this database against other writers until the transaction ends; SQLite has one writer."""
    if session.connection().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(_POSTGRESQL_LOCK)))
