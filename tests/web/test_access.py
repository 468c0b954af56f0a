"""Who gets what from the server: token, cookie, host, origin, methods, sizes, paths, headers."""

from __future__ import annotations

import http.client
import json
import logging
import re
import shutil
import socket
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.waiting import HANG

import palaestrai_mosaik as pm
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.web.access import Access, lasting_token, names_of
from palaestrai_mosaik.web.page import static, static_files
from palaestrai_mosaik.web.resources import Source
from palaestrai_mosaik.web.workplace import Workplace

from .conftest import Serve


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])


class Client:
    """Sends requests, with the cookie and what a browser sends unless it is told otherwise."""

    def __init__(self, address: str):
        parts = urlsplit(address)
        assert parts.hostname is not None and parts.port is not None
        self.host, self.port, self.token = parts.hostname, parts.port, parts.query.removeprefix("token=")
        self.cookie = f"palaestrai-mosaik-{self.port}={self.token}"
        self.origin = f"http://{self.host}:{self.port}"

    def __call__(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str | None
    ) -> Answer:
        sent: dict[str, str | None] = {"Cookie": self.cookie}
        if method == "POST":
            sent |= {"Origin": self.origin, "Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=HANG)
        skip = "Host" in sent
        connection.putrequest(method, path, skip_host=skip, skip_accept_encoding=True)
        for name, value in sent.items():
            if value is not None:
                connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        answer = Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        connection.close()
        return answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    pm.run("scenarios/dummy.yml", store=folder, quiet=True)
    return folder


@pytest.fixture
def client(serve: Serve, folder: Path) -> Iterator[Client]:
    location = StoreLocation(str(folder))
    yield Client(serve(Source(location, workplace=Workplace(location))))


def test_nothing_is_answered_without_the_token(client: Client) -> None:
    for path in ("/", "/?token=", "/?token=wrong", f"/api/store?token={client.token}", "/static/x/app.js"):
        assert client(path, Cookie=None).status == 401
        assert client(path, Cookie=client.cookie[:-1]).status == 401
    assert client("/api/documents/check", "POST", b"{}", Cookie=None).status == 401
    assert client("/", Cookie=f"{client.cookie.split('=')[0]}=\xff").status == 401
    assert client("/").status == 200


def test_the_first_address_sets_a_cookie_that_scripts_and_other_sites_do_not_get(client: Client) -> None:
    first = client(f"/?token={client.token}", Cookie=None)
    assert (first.status, first.headers["location"]) == (303, "/")
    name, value, *rules = re.split("; |=", first.headers["set-cookie"])
    assert f"{name}={value}" == client.cookie
    assert {"HttpOnly", "SameSite", "strict", "Path"} <= set(rules)
    # a browser would not send the cookie where another site's link was redirected
    linked = client(f"/?token={client.token}", Cookie=None, Sec_Fetch_Site="cross-site")
    assert linked.status == 200 and "set-cookie" in linked.headers
    assert b'content="0;url=./"' in linked.body and client.token.encode() not in linked.body


def test_only_its_own_names_are_answered(client: Client) -> None:
    for host in (
        "evil.example",
        f"evil.example:{client.port}",
        "127.0.0.1.evil.example",
        "",
        "[::1",
        "192.0.2.1",
        "localhost:1@evil.example",
        "localhost:evil.example",
        "localhost:1:2",
        "localhost:1/",
        "localhost:\xd9\xa1",  # a digit that is not ASCII, in UTF-8
        "localhost:\xb2",  # str.isdigit() is true
        "localhost@evil.example",
        "evil.example@localhost",
        "[::1]evil.example",
        "[::1]:1@evil.example",
        "[::1]@evil.example:1",
        "localhost,evil.example",
        "localhost evil.example",
        "localhost:123456",
    ):
        assert client("/", Host=host).status in (400, 421), host
    for host in ("localhost", f"LOCALHOST:{client.port}", "127.0.0.1:9000", "[::1]:1"):
        assert client("/", Host=host).status == 200, host


def test_names_of_a_machine_are_answered_where_others_may_come_from() -> None:
    others = Access(names_of("0.0.0.0", 80, ("Box", "box.lan")), any_address=True)
    for host in ("box", "BOX.lan:80", "192.0.2.7:80", "[2001:db8::1]:80", "localhost:1"):
        assert others.answers(host), host
    for host in (
        *("evil.example", "192.0.2.7.evil.example", "box.lan.evil.example", None, ""),
        *("192.0.2.7:1@evil.example", "[2001:db8::1]:evil.example", "192.0.2.7@evil.example", "box:x"),
    ):
        assert not others.answers(host), host
    alone = Access(names_of("127.0.0.1", 80, ("box",)))
    assert not alone.answers("box") and not alone.answers("192.0.2.7")
    assert alone.cookie == "palaestrai-mosaik-80"


def test_a_lasting_token_is_of_one_user_store_port_and_set_of_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RESULTS", "postgresql://me:sesame@host/results")
    monkeypatch.setenv("OTHER", "postgresql://me:sesame@host/other")
    (tmp_path / "link").symlink_to(tmp_path / "store")

    def token(
        place: str = "store",
        port: int = 8765,
        design: Path | None = None,
        read_only: bool = False,
        modules: tuple[str, ...] | None = None,
    ) -> str:
        return lasting_token(StoreLocation(place), design, port, read_only=read_only, modules=modules)

    own = token()
    assert re.fullmatch("[0-9a-f]{64}", own)
    assert own == token(str(tmp_path / "store")) == token("link") == token("../" + tmp_path.name + "/store/")
    others = [
        *(token("other"), token(port=8766), token(read_only=True), token(modules=()), token(modules=("a",))),
        *(token("env:RESULTS"), token("env:OTHER"), token("sqlite:///store")),
        *(token(design=tmp_path / "a"), token(design=tmp_path / "b")),
    ]
    assert len({own, *others}) == len(others) + 1
    assert token(modules=("a", "b")) == token(modules=("b", "a"))
    # the password of the database may change
    monkeypatch.setenv("RESULTS", "postgresql://me:other@host/results")
    assert token("env:RESULTS") in others
    monkeypatch.setenv("PALAESTRAI_MOSAIK_KEY", str(tmp_path / "theirs"))
    assert token() != own


def test_actions_come_from_the_page_itself(client: Client) -> None:
    for origin in (
        None,
        "null",
        "http://evil.example",
        f"https://{client.host}:{client.port}",
        f"http://{client.host}:1",
    ):
        answer = client("/api/run/x/cancel", "POST", b"{}", Origin=origin)
        assert (answer.status, "Origin" in answer.error) == (403, True), origin
    for kind in (
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; a=application/json",
    ):
        assert client("/api/run/x/cancel", "POST", b"{}", Content_Type=kind).status == 415, kind
    assert (
        client("/api/run/x/cancel", "POST", b"{}", Content_Type="application/json; charset=utf-8").status
        == 409
    )


def test_other_sites_get_nothing(client: Client) -> None:
    for site in ("cross-site", "same-site"):
        assert client("/api/store", Sec_Fetch_Site=site).status == 403
    answer = client("/api/store", Origin="http://evil.example")
    assert [name for name in answer.headers if name.startswith("access-control")] == []
    assert client("/api/store", Sec_Fetch_Site="same-origin").status == 200


def test_methods_are_limited(client: Client) -> None:
    for method in ("OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"):
        answer = client("/api/store", method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST"), method
    head = client("/api/store", "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert client("/", "POST", b"{}").status == 405


def test_every_answer_has_the_rules_for_the_browser(client: Client) -> None:
    for path in ("/", "/api/store", "/api/nothing", "/nothing", "/static/x/app.js"):
        headers = client(path).headers
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "server" not in headers
    policy = client("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "style-src 'self'" in policy
    assert not re.search(r"unsafe|\*|https?:", policy)
    # the only script that is not a file is the map of modules, by its hash
    assert re.search(r"script-src 'self' 'sha256-[\w+/=]+';", policy)


def test_only_files_of_the_page_are_sent(client: Client) -> None:
    page = client("/").body.decode()
    (style,) = re.findall(r'href="\./(static/\w+/)style\.css"', page)
    assert client(f"/{style}app.js").body == static("app.js")
    for path in (
        "../page.py",
        "%2e%2e/page.py",
        "..%2fpage.py",
        "..%5cpage.py",
        "%2e%2e%2f%2e%2e%2fpyproject.toml",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "views/../../page.py",
        "app.js%00.css",
        "vendor",
        "",
    ):
        answer = client(f"/{style}{path}")
        assert answer.status == 404, path
        assert answer.error.startswith("no file")
    assert client("/static/other/app.js").status == 404


def test_no_file_of_the_machine_is_reached_by_the_name_of_a_run(client: Client, tmp_path: Path) -> None:
    for run in ("..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "latest%00", "a%1b%5b2J"):
        for path in (f"/api/run/{run}", f"/api/started/{run}"):
            answer = client(path)
            assert answer.status == 404, path
            assert "root:" not in answer.error


def test_a_link_in_place_of_a_log_is_not_followed(
    serve: Serve, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, secret = tmp_path / "store", tmp_path / "secret"
    secret.write_text("a secret")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    store.mkdir()
    (store / "started").symlink_to(elsewhere)
    location = StoreLocation(str(store))
    workplace = Workplace(location)
    client = Client(serve(Source(location, workplace=workplace)))
    text = Path("scenarios/dummy.yml").read_text(encoding="utf-8")
    answer = client("/api/documents/start", "POST", json.dumps({"text": text}).encode())
    assert answer.status == 409
    assert answer.error.startswith(f"{store}/started")
    assert "started is a link, and links" in answer.error
    assert list(elsewhere.iterdir()) == []
    # of what was started before somebody put a link there
    (store / "started").unlink()
    key = client("/api/documents/start", "POST", json.dumps({"text": text}).encode())
    key = json.loads(key.body)["key"]
    (one,) = [one for one in workplace.started() if one.key == key]
    one.process.wait()
    one.log.unlink()
    one.log.symlink_to(secret)
    answer = client(f"/api/started/{key}")
    assert answer.status == 200
    assert b"a secret" not in answer.body
    assert b"is a link, and links below" in answer.body
    assert "Traceback" not in caplog.text


def test_links_in_a_store_are_answered_in_words(
    serve: Serve, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of another folder was sent; a link in the place of ``instances`` gave a traceback."""
    store = tmp_path / "store"
    shutil.copytree(folder, store)
    (run,) = (path.name for path in (store / "instances").iterdir())
    log, secret = store / "instances" / run / "log.txt", tmp_path / "secret"
    secret.write_text("a secret\n")
    log.unlink(missing_ok=True)
    log.symlink_to(secret)
    client = Client(serve(Source(StoreLocation(str(store)))))
    answer = client(f"/api/run/{run}/log")
    assert (answer.status, "log.txt is a link, and links below" in answer.error) == (404, True)
    (store / "instances").rename(tmp_path / "instances")
    for target in (tmp_path / "instances", store / "instances"):
        (store / "instances").symlink_to(target)
        for path in ("log", "", "world", "curves", "record", "phases"):
            answer = client(f"/api/run/{run}/{path}".rstrip("/"))
            assert answer.status < 500, (path, answer.body)
            assert b"a secret" not in answer.body
        (store / "instances").unlink()
    assert "Traceback" not in caplog.text


def test_errors_say_nothing_of_the_code(serve: Serve, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Source):
        @property
        def store(self) -> Store:
            raise ZeroDivisionError("the password is sesame\x1b[2J")

    client = Client(serve(Broken(StoreLocation(str(folder)))))
    with caplog.at_level(logging.ERROR, "palaestrai_mosaik"):
        answer = client("/api/store")
    assert answer.status == 500
    assert "ZeroDivisionError" in answer.error
    assert "sesame" not in answer.error and "Traceback" not in answer.error and ".py" not in answer.error
    assert "sesame" in caplog.text


def test_unknown_things_are_named_with_what_is_near(client: Client) -> None:
    assert "did you mean 'store'" in client("/api/stor").error
    assert client("/api/run/no-such-run").status == 404
    answer = client("/api/documents/chek", "POST", b"{}")
    assert answer.status == 404 and "did you mean 'documents/check'" in answer.error


def test_bodies_are_limited(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from palaestrai_mosaik.web import server

    monkeypatch.setattr(server, "MAX_BODY", 1000)
    monkeypatch.setattr(server, "BODY_TIMEOUT", 0.2)
    path = "/api/documents/check"
    assert client(path, "POST", b"x" * 1001).status == 413
    for body in (b"[1]", b"{", b"\xff", b"[" * 900):
        assert client(path, "POST", body).status == 400, body
    assert client(path, "POST", b'{"text": 1}').error == "text: expected a text, found 1"
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {client.cookie}\r\nOrigin: http://localhost\r\n"
        "Content-Type: application/json\r\n"
    )
    for rest, status in (
        # a body that never arrives, and one of a size that is not said before
        (b"Content-Length: 10\r\n\r\n{", b" 408 "),
        (b"Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001 + b"\r\n", b" 413 "),
    ):
        with socket.create_connection((client.host, client.port), 30) as one:
            one.sendall(head.encode() + rest)
            assert status in one.recv(100)


def test_slow_and_dead_clients_keep_nobody_out(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from palaestrai_mosaik.web import server

    monkeypatch.setattr(server, "HEAD_TIMEOUT", 0.3)
    opened = [socket.create_connection((client.host, client.port), 30) for _ in range(40)]
    for number, one in enumerate(opened):
        one.sendall(b"GET / HTTP/1.1\r\nHost: loc" if number % 2 else b"")
    # one that asks and does not read
    deaf = socket.create_connection((client.host, client.port), 30)
    deaf.sendall(
        f"GET /api/store HTTP/1.1\r\nHost: localhost\r\nCookie: {client.cookie}\r\n\r\n".encode() * 5
    )
    assert client("/api/store").status == 200
    for one in opened:
        # they are closed, which would else take as long as the clients like (each has a limit of 30 s here)
        with suppress(ConnectionResetError):
            assert one.recv(10) == b""
        one.close()
    deaf.close()
    assert client("/api/store").status == 200


def test_files_of_the_page_are_sent_once(client: Client) -> None:
    page = client("/").body.decode()
    (address,) = re.findall(r'src="\.(/static/\w+/vendor/echarts\.min\.js)"', page)
    whole, packed = client(address), client(address, Accept_Encoding="gzip")
    assert whole.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert packed.headers["content-encoding"] == "gzip" and len(packed.body) < 450_000 < len(whole.body)
    assert client("/").headers["cache-control"] == "no-store"


def test_a_resource_that_has_not_changed_is_not_sent_again(client: Client) -> None:
    first = client("/api/run/latest")
    again = client("/api/run/latest", If_None_Match=first.headers["etag"])
    assert (first.status, again.status, again.body) == (200, 304, b"")
    assert client("/api/store", If_None_Match=first.headers["etag"]).status == 200


def test_a_page_that_only_shows_refuses_every_action(serve: Serve, folder: Path) -> None:
    client = Client(serve(Source(StoreLocation(str(folder)))))
    for path in (
        "documents/check",
        "documents/start",
        "run/latest/cancel",
        "run/latest/resume",
        "run/latest/label",
        "runs/label",
        "design/cancel",
        "x",
    ):
        answer = client(f"/api/{path}", "POST", b"{}")
        assert (answer.status, "--read-only" in answer.error) == (403, True), path
    assert json.loads(client("/api/store").body)["actions"] is False
    assert not (folder / "started").exists()


def test_reading_leaves_the_cores_to_the_runs(serve: Serve, folder: Path) -> None:
    import os
    import sys
    import threading

    if sys.platform != "linux":
        pytest.skip("priorities of threads are those of Linux")
    seen: set[tuple[str, int]] = set()

    class Watched(Source):
        @property
        def store(self) -> Store:
            seen.add((threading.current_thread().name[:4], os.getpriority(os.PRIO_PROCESS, 0)))
            return super().store

    before = os.getpriority(os.PRIO_PROCESS, 0)
    client = Client(serve(Watched(StoreLocation(str(folder)))))
    client("/api/store")
    assert seen == {("read", min(19, before + 10))}
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_the_library_of_charts_is_the_published_one() -> None:
    # https://registry.npmjs.org/echarts, 6.1.0, dist/echarts.min.js
    found = sha256(static("vendor/echarts.min.js")).hexdigest()
    assert found == "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0"
    assert {"vendor/echarts.LICENSE", "vendor/echarts.NOTICE"} <= set(static_files())
    assert b"Apache License" in static("vendor/echarts.LICENSE")
    assert b"Apache ECharts" in static("vendor/echarts.NOTICE")
    root = Path(__file__).parents[2]
    shipped = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["license-files"]
    assert [name for name in shipped if not (root / name).is_file()] == []
    libraries = {"echarts.LICENSE", "echarts.NOTICE", "preact.LICENSE", "preact-signals.LICENSE"}
    assert {Path(name).name for name in shipped} == {"LICENSE", *libraries}


@pytest.mark.parametrize(
    ("name", "package", "hash_"),
    [
        (
            "preact",
            "preact 11.2.0, dist/preact.mjs",
            "bdcbd9abdf2c77c5c45326eab42191e949222d479d0d5f69467387a77040cb55",
        ),
        (
            "preact-hooks",
            "preact 11.2.0, hooks/dist/hooks.mjs",
            "e862ab2973aa6455eaa0f77c5d832d2157d6be59a17c8ba546550a575b58c6b4",
        ),
        (
            "signals-core",
            "@preact/signals-core 1.14.5, dist/signals-core.mjs",
            "0c80bc127d72ecb1496ef116ffddae75079829a3af01e7f417c8e5a6474c68b6",
        ),
        (
            "preact-signals",
            "@preact/signals 2.11.4, dist/signals.mjs",
            "ba8177597f45acaca4d05dcf3966b527d0a8264cfa2b0a87ace92dff324217f8",
        ),
    ],
)
def test_the_library_of_views_is_the_published_one(name: str, package: str, hash_: str) -> None:
    assert sha256(static(f"vendor/{name}.js")).hexdigest() == hash_, package
    licence = "preact.LICENSE" if package.startswith("preact ") else "preact-signals.LICENSE"
    assert b"The MIT License" in static(f"vendor/{licence}")
    version = re.search(r"^(\S+) ([\d.]+),", package)
    assert version is not None
    lock = json.loads((Path(__file__).parents[1] / "javascript" / "package-lock.json").read_text("utf-8"))
    assert lock["packages"][f"node_modules/{version[1]}"]["version"] == version[2], "types of another release"
