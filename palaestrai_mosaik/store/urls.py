"""Database URLs: resolved from files and variables, and shown without their passwords.

A location of a store is a folder, the URL of a database, or a reference to such a URL: ``@FILE`` (its first
line) or ``env:NAME`` (an environment variable). Code that passes on or prints a location does not need the
password, so the reference is resolved when the database is opened, and passwords are masked wherever a location is
shown.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from urllib.parse import quote, quote_plus

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from palaestrai_mosaik.core.errors import StoreError

#: prefixes of references to a URL
FILE, VARIABLE = "@", "env:"
#: replaces a password
MASK = "***"
#: query keys with harmless values; drivers know many others, and some are secrets
_TOLD = frozenset(
    (
        *("host", "hostaddr", "port", "user", "dbname", "database", "charset", "client_encoding", "driver"),
        *("sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "passfile", "gssencmode"),
        *("connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
        *("tcp_user_timeout", "application_name", "fallback_application_name", "target_session_attrs"),
        *("channel_binding", "mode", "cache", "uri", "immutable", "nolock", "timeout"),
    )
)
#: allowed characters of such a value, apart from ports: it can hold neither another URL nor key-value pairs
_SHOWN_VALUE, _PORT = re.compile(r"[\w ./,{}+-]*"), re.compile(r":\d+(?=,|$)")
#: other query keys that hold secrets, or texts with a password in them
_SECRET = re.compile(r"pass|pwd|secret|token|key|auth|cred|connect|conn_?(str|info)|dsn", re.IGNORECASE)
#: connection strings of libpq, ODBC and others; no folder has such a name
_PAIRS = re.compile(
    r"(?:^|[\s;])(?:host|hostaddr|server|driver|dsn|dbname|database|user|uid|password|passwd|pass|pwd)\s*=",
    re.IGNORECASE,
)
#: malformed URLs: a database name with a colon, or a user with a password
_BACKENDS = "postgres|postgresql|psql|mysql|mariadb|mssql|oracle|cockroachdb|redshift|sqlite|duckdb|jdbc|odbc"
_NEARLY = re.compile(
    rf"(?:{_BACKENDS})(?:\+\w*)?(?::|//)|(?://|\w{{2,}}:/*)?[^\s/:@]*:[^\s@]*@[^\s/]", re.IGNORECASE
)
#: drivers that load no other code, if the URL has no options
_PLAIN_DRIVERS = frozenset({"sqlite", "postgresql+psycopg"})
#: shorter passwords are not masked: they would match parts of many words
_SHORTEST = 3
_ADVICE = (
    "write it as postgresql://user@host/name; in user and password, @ : / ? # and % are written "
    "%40 %3A %2F %3F %23 %25"
)


def is_database(location: str) -> bool:
    """Whether ``location`` is a database URL, even a malformed one, or a reference to one; else it is a folder."""
    if "://" in location or location.startswith((FILE, VARIABLE)):
        return True
    return bool(_PAIRS.search(location) or _NEARLY.match(location.lstrip()))


def absolute(location: str) -> str:
    """Make the location of a database independent of the working directory."""
    if location.startswith(FILE):
        return FILE + str(Path(location.removeprefix(FILE)).expanduser().absolute())
    return location


def database_url(location: str) -> sa.URL:
    """Parse the URL in ``location``, or the URL that it refers to.

    Args:
        location: a URL, ``@FILE`` or ``env:NAME``.

    Raises:
        StoreError: this is not a URL, the file cannot be read, other users may read it although it has a password, or
            the variable is not set. The message does not quote the content.
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
    """Mask the password in ``location``."""
    if not is_database(location) or location.startswith((FILE, VARIABLE)):
        return location
    try:
        return masked(_parsed(location, ""))
    except StoreError:
        # any part of it may be the password
        scheme, separator, _ = location.partition("://")
        return f"{scheme}://{MASK}" if separator and re.fullmatch(_BACKENDS, scheme) else MASK


def masked(url: sa.URL) -> str:
    """Format ``url`` with its passwords and possible secrets masked."""
    secret = {key: MASK for key, value in url.query.items() if not _may_be_shown(key, value)}
    shown_url = url.update_query_dict(secret).render_as_string(hide_password=True)
    return shown_url.replace(quote_plus(MASK), MASK)


def _may_be_shown(key: str, value: str | tuple[str, ...]) -> bool:
    values = (value,) if isinstance(value, str) else value
    return key.lower() in _TOLD and all(_SHOWN_VALUE.fullmatch(_PORT.sub("", text)) for text in values)


def holds_password(location: str) -> bool:
    """Whether ``location`` itself contains a password."""
    if not is_database(location) or location.startswith((FILE, VARIABLE)):
        return False
    try:
        return bool(_passwords(_parsed(location, "")))
    except StoreError:
        return True


def check_named(location: str) -> None:
    """Raise :class:`StoreError` if a document with limited modules may not use ``location``.

    SQLAlchemy imports the dialect, driver or plugin in a URL, and a driver may load libraries that an option names.
    """
    if not is_database(location):
        return
    url = database_url(location)
    if url.drivername not in _PLAIN_DRIVERS or url.query:
        raise StoreError(
            f"{shown(location)} has a driver or options of its own; a document whose modules are limited "
            "(--allow-modules) may name folders, sqlite:///FILE and postgresql://USER@HOST/NAME"
        )


def without_passwords(text: str, url: sa.URL) -> str:
    """Mask the passwords of ``url`` in a driver's message."""
    for password in _passwords(url):
        for form in (password, quote(password, safe=""), quote_plus(password)):
            if len(form) >= _SHORTEST:
                text = text.replace(form, MASK)
    return text


def _passwords(url: sa.URL) -> list[str]:
    """List the passwords in ``url``, and query values that a driver may use as one; longest first."""
    passwords = {str(url.password or "")}
    for key, values in url.query.items():
        if not _may_be_shown(key, values):
            for value in (values,) if isinstance(values, str) else values:
                passwords |= _secrets_in(key, value)
    return sorted(passwords - {""}, key=len, reverse=True)


def _secrets_in(key: str, value: str) -> set[str]:
    """Return the value of a query key, and parts of it that a message may quote, if they may be secret."""
    if not (key.lower() in _TOLD or _SECRET.search(key) or _PAIRS.search(value)):
        return set()
    pairs = [part for pair in re.split(r"[;\s]", value) for part in pair.partition("=")[2:]]
    return {value, *pairs, *re.findall(r":([^:@/]+)@", value)}


def _url_in_file(path: Path) -> sa.URL:
    try:
        with open(path, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            line = file.readline().strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise StoreError(f"cannot read the URL of the store in {path}: {why}") from error
    url = _parsed(line, f"the first line of {path}")
    foreign_bits = mode & (stat.S_IRWXG | stat.S_IRWXO)
    if os.name == "posix" and foreign_bits and _passwords(url):
        raise StoreError(
            f"{path} holds a password, and others may read or write it (mode {stat.S_IMODE(mode):04o}): "
            f"chmod 600 {path}"
        )
    return url


def _parsed(text: str, name: str) -> sa.URL:
    """Parse ``text``, which error messages call ``name``."""
    problem = StoreError(f"{name} is not the URL of a database: {_ADVICE}")
    try:
        url = sa.make_url(text)
    except (SQLAlchemyError, ValueError):
        # both may quote a part of the password as port or host
        raise problem from None
    beside = url.host or url.username or url.password
    if "@" in (url.host or "") or (beside and "@" in (url.database or "")):
        raise problem
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    return url
