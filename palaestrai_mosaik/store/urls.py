"""The URLs of databases: read from where they are kept, and told without their passwords.

A location of a store is a folder, the URL of a database, or where that URL is kept: ``@FILE`` (its first
line) or ``env:NAME`` (an environment variable). Nobody who hands on or tells a location needs the
password, so it is read where the database is opened, and masked wherever a location is told.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from urllib.parse import quote, quote_plus

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from palaestrai_mosaik.errors import StoreError

#: what begins a location that says where a URL is kept
FILE, VARIABLE = "@", "env:"
#: what stands for a password
MASK = "***"
#: keys of the part after ``?`` that hold secrets, in PostgreSQL; in whatever letters they are written
_SECRETS = frozenset(
    {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}
)
#: how libpq, and others, write what SQLAlchemy writes as a URL: no name of a folder looks like that
_PAIRS = re.compile(r"(?:^|[\s;])(?:host|hostaddr|server|dbname|password|pwd)\s*=", re.IGNORECASE)
#: a password so short would be found in every other word of a message
_SHORTEST = 3
_ADVICE = (
    "write it as postgresql://user@host/name; in user and password, @ : / ? # and % are written "
    "%40 %3A %2F %3F %23 %25"
)


def is_database(location: str) -> bool:
    """Whether ``location`` means a database, not a folder: by its URL, or by what should have been one."""
    return "://" in location or location.startswith((FILE, VARIABLE)) or bool(_PAIRS.search(location))


def database_url(location: str) -> sa.URL:
    """Return the URL that ``location`` is, or says the place of.

    Raises :class:`StoreError`, which does not quote what was found, for what is no URL, a file that
    cannot be read or that others may read although there is a password in it, and a variable that
    is not set.
    """
    if location.startswith(FILE):
        return _url_in_file(Path(location.removeprefix(FILE)).expanduser())
    if location.startswith(VARIABLE):
        name = location.removeprefix(VARIABLE)
        text = os.environ.get(name, "").strip()
        if not text:
            raise StoreError(f"the environment variable {name!r} holds no URL of a database: it is not set")
        return _parsed(text, f"what the environment variable {name} holds")
    return _parsed(location, shown(location))


def shown(location: str) -> str:
    """Return ``location`` as it may be told to everybody: without a password."""
    if not is_database(location) or location.startswith((FILE, VARIABLE)):
        return location
    try:
        return masked(_parsed(location, ""))
    except StoreError:
        # nobody knows what in it is the password
        scheme, found, _ = location.partition("://")
        return f"{scheme}://{MASK}" if found and not _PAIRS.search(scheme) else MASK


def masked(url: sa.URL) -> str:
    """Return ``url`` as text, without passwords."""
    secret = {key: MASK for key in url.query if key.lower() in _SECRETS}
    told = url.update_query_dict(secret).render_as_string(hide_password=True)
    return told.replace(quote_plus(MASK), MASK)


def holds_password(location: str) -> bool:
    """Whether ``location`` itself has a password in it, for everybody to see."""
    if not is_database(location) or location.startswith((FILE, VARIABLE)):
        return False
    try:
        return bool(_passwords(_parsed(location, "")))
    except StoreError:
        return True


def without_passwords(text: str, url: sa.URL) -> str:
    """Return a message, of a driver for instance, with the passwords of ``url`` masked."""
    for password in _passwords(url):
        for form in (password, quote(password, safe=""), quote_plus(password)):
            if len(form) >= _SHORTEST:
                text = text.replace(form, MASK)
    return text


def _passwords(url: sa.URL) -> list[str]:
    found = [] if url.password is None else [str(url.password)]
    for key, value in url.query.items():
        if key.lower() in _SECRETS:
            found += [value] if isinstance(value, str) else value
    return [password for password in found if password]


def _url_in_file(path: Path) -> sa.URL:
    try:
        with open(path, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            line = file.readline().strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise StoreError(f"cannot read the URL of the store in {path}: {why}") from error
    url = _parsed(line, f"the first line of {path}")
    others = mode & (stat.S_IRWXG | stat.S_IRWXO)
    if os.name == "posix" and others and _passwords(url):
        raise StoreError(
            f"{path} holds a password, and others may read or write it (mode {stat.S_IMODE(mode):04o}): "
            f"chmod 600 {path}"
        )
    return url


def _parsed(text: str, told: str) -> sa.URL:
    """Return the URL that ``text`` is; errors call it ``told``."""
    problem = StoreError(f"{told} is not the URL of a database: {_ADVICE}")
    try:
        url = sa.make_url(text)
    except (SQLAlchemyError, ValueError):
        # both may quote what they took for a port or a host
        raise problem from None
    if "@" in (url.host or ""):
        raise problem
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    return url
