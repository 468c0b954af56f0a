"""The URLs of databases: read from where they are kept, and shown without their passwords.

A location of a store is a folder, the URL of a database, or where that URL is kept: ``@FILE`` (its first
line) or ``env:NAME`` (an environment variable). Code that hands on or prints a location does not need the
password, so it is read where the database is opened, and masked wherever a location is shown.
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
#: keys of the part after ``?`` with values that may be shown; drivers know many others, and some are secrets
_TOLD = frozenset(
    {
        *("host", "hostaddr", "port", "user", "dbname", "database", "charset", "client_encoding", "driver"),
        *(
            "sslmode",
            "sslcert",
            "sslkey",
            "sslrootcert",
            "sslcrl",
            "passfile",
            "gssencmode",
            "channel_binding",
        ),
        *("connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
        *("tcp_user_timeout", "application_name", "fallback_application_name", "target_session_attrs"),
        *("mode", "cache", "uri", "immutable", "nolock", "timeout"),
    }
)
#: what such a value consists of, but for ports: not another URL, and no pairs of keys and values
_SHOWN_VALUE, _PORT = re.compile(r"[\w ./,{}+-]*"), re.compile(r":\d+(?=,|$)")
#: keys of others that hold secrets, in whatever letters they are written, or texts with a password in them
_SECRET = re.compile(r"pass|pwd|secret|token|key|auth|cred|connect|conn_?(str|info)|dsn", re.IGNORECASE)
#: how libpq, ODBC and others write what SQLAlchemy writes as a URL: no name of a folder looks like that
_PAIRS = re.compile(
    r"(?:^|[\s;])(?:host|hostaddr|server|driver|dsn|dbname|database|user|uid|password|passwd|pass|pwd)\s*=",
    re.IGNORECASE,
)
#: what should have been a URL: the name of a database with a colon, and a user with a password
_BACKENDS = "postgres|postgresql|psql|mysql|mariadb|mssql|oracle|cockroachdb|redshift|sqlite|duckdb|jdbc|odbc"
_NEARLY = re.compile(
    rf"(?:{_BACKENDS})(?:\+\w*)?(?::|//)|(?://|\w{{2,}}:/*)?[^\s/:@]*:[^\s@]*@[^\s/]", re.IGNORECASE
)
#: drivers that load nothing else, without options in the URL
_PLAIN_DRIVERS = frozenset({"sqlite", "postgresql+psycopg"})
#: a password so short would be found in every other word of a message
_SHORTEST = 3
_ADVICE = (
    "write it as postgresql://user@host/name; in user and password, @ : / ? # and % are written "
    "%40 %3A %2F %3F %23 %25"
)


def is_database(location: str) -> bool:
    """Whether ``location`` means a database, not a folder: by its URL, or by what should have been one."""
    if "://" in location or location.startswith((FILE, VARIABLE)):
        return True
    return bool(_PAIRS.search(location) or _NEARLY.match(location.lstrip()))


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
    """Return ``location`` as it may be shown: without a password."""
    if not is_database(location) or location.startswith((FILE, VARIABLE)):
        return location
    try:
        return masked(_parsed(location, ""))
    except StoreError:
        # nobody knows what in it is the password
        scheme, found, _ = location.partition("://")
        return f"{scheme}://{MASK}" if found and re.fullmatch(_BACKENDS, scheme) else MASK


def masked(url: sa.URL) -> str:
    """Return ``url`` as text, without passwords and without what might be one."""
    secret = {key: MASK for key, value in url.query.items() if not _may_be_shown(key, value)}
    shown_url = url.update_query_dict(secret).render_as_string(hide_password=True)
    return shown_url.replace(quote_plus(MASK), MASK)


def _may_be_shown(key: str, value: str | tuple[str, ...]) -> bool:
    values = (value,) if isinstance(value, str) else value
    return key.lower() in _TOLD and all(_SHOWN_VALUE.fullmatch(_PORT.sub("", one)) for one in values)


def holds_password(location: str) -> bool:
    """Whether ``location`` itself has a password in it, for everybody to see."""
    if not is_database(location) or location.startswith((FILE, VARIABLE)):
        return False
    try:
        return bool(_passwords(_parsed(location, "")))
    except StoreError:
        return True


def check_named(location: str) -> None:
    """Raise :class:`StoreError` if a document whose modules are limited may not name ``location``.

    SQLAlchemy imports what a URL names as its dialect, driver or plugin, and a driver may load what an
    option names.
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
    """Return a message, of a driver for instance, with the passwords of ``url`` masked."""
    for password in _passwords(url):
        for form in (password, quote(password, safe=""), quote_plus(password)):
            if len(form) >= _SHORTEST:
                text = text.replace(form, MASK)
    return text


def _passwords(url: sa.URL) -> list[str]:
    """Return the passwords in ``url``, and the values of what a driver may take for one."""
    found = [] if url.password is None else [str(url.password)]
    for key, value in url.query.items():
        if _may_be_shown(key, value):
            continue
        for one in (value,) if isinstance(value, str) else value:
            if key.lower() in _TOLD or _SECRET.search(key) or _PAIRS.search(one):
                found.append(one)
                # a message may quote a part of it
                found += [part for pair in re.split(r"[;\s]", one) for part in pair.partition("=")[2:]]
                found += re.findall(r":([^:@/]+)@", one)
    return sorted((password for password in set(found) if password), key=len, reverse=True)


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


def _parsed(text: str, name: str) -> sa.URL:
    """Return the URL that ``text`` is; errors call it ``name``."""
    problem = StoreError(f"{name} is not the URL of a database: {_ADVICE}")
    try:
        url = sa.make_url(text)
    except (SQLAlchemyError, ValueError):
        # both may quote what they took for a port or a host
        raise problem from None
    beside = url.host or url.username or url.password
    if "@" in (url.host or "") or (beside and "@" in (url.database or "")):
        raise problem
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    return url
