"""The server: which requests it answers, what it sends, and that samples reach the charts."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlsplit

import pytest
from bokeh.client import pull_session
from tests.ui.hostile import hostile_watch
from tests.ui.play import new_watch, recorded, step

from dovetail.errors import ConfigError
from dovetail.page import serve
from dovetail.page.charts import AT
from dovetail.page.server import Page

TOKEN = "correct horse battery/staple&?=ü"  # noqa: S105  (a token of the tests)


@pytest.fixture(scope="module")
def open_page() -> Iterator[Page]:
    with serve(recorded(5)) as page:
        yield page


@pytest.fixture(scope="module")
def closed_page() -> Iterator[Page]:
    with serve(recorded(5), host="0.0.0.0", token=TOKEN) as page:  # noqa: S104  (what the token is for)
        yield page


def ask(page: Page, path: str = "/", method: str = "GET", **headers: str) -> HTTPResponse:
    """The answer to one request, without following redirects."""
    connection = HTTPConnection("127.0.0.1", urlsplit(page.url).port, timeout=10)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    answer.body = answer.read().decode()  # type: ignore[attr-defined]  # kept for the assertions
    connection.close()
    return answer


def cookie_of(page: Page) -> str:
    answer = ask(page, "/" + page.url.rpartition("/")[2])
    return answer.headers["Set-Cookie"].partition(";")[0]


def open_socket(page: Page, **headers: str) -> int:
    """101 if the web socket opens, otherwise the status of the refusal."""
    wish = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Version": "13"}
    key = {"Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec_WebSocket_Protocol": "bokeh"}
    return ask(page, "/ws", **wish, **key, **headers).status


def test_the_page_answers_and_may_load_nothing_from_elsewhere(open_page: Page) -> None:
    answer = ask(open_page)
    assert answer.status == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert not re.search(r"unsafe-eval|https?:|\*", policy)
    assert "unsafe-inline" not in re.search(r"script-src ([^;]*)", policy)[1]
    assert "http://" not in answer.body
    assert "https://" not in answer.body


def test_every_script_carries_the_nonce_of_its_answer(open_page: Page) -> None:
    answers = [ask(open_page), ask(open_page)]
    nonces = [re.search(r"'nonce-([^']+)'", answer.headers["Content-Security-Policy"])[1] for answer in answers]
    assert nonces[0] != nonces[1]
    for answer, nonce in zip(answers, nonces, strict=True):
        tags = re.findall(r"<script[^>]*>", answer.body)
        assert len(tags) >= 4
        assert all(f'nonce="{nonce}"' in tag for tag in tags)


def test_scripts_come_from_this_server_whatever_the_environment(
    open_page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOKEH_RESOURCES", "cdn")
    sources = re.findall(r'src="([^"]+)"', ask(open_page).body)
    assert sources == ["/static/js/bokeh.min.js", "/static/js/bokeh-widgets.min.js"]
    assert all(len(ask(open_page, source).body) > 100_000 for source in sources)


@pytest.mark.parametrize("path", ["/autoload.js", "/metadata", "/static/js/bokeh.js", "/static/../server.py", "/x"])
def test_nothing_else_is_served(open_page: Page, path: str) -> None:
    assert ask(open_page, path).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_the_page_is_read_only(open_page: Page, method: str) -> None:
    assert ask(open_page, method=method).status == 405


def test_pages_of_other_sites_get_nothing(open_page: Page) -> None:
    host = urlsplit(open_page.url).netloc
    assert ask(open_page, Host="evil.example").status == 403
    assert ask(open_page, Origin="http://evil.example").status == 403
    assert ask(open_page, Origin=f"http://{host}").status == 200
    assert open_socket(open_page, Origin="http://evil.example") == 403
    assert open_socket(open_page, Origin=f"http://{host}", Host="evil.example") == 403
    assert open_socket(open_page, Origin=f"http://{host}") == 101


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.7", "example.org"])  # noqa: S104  (refused)
def test_a_network_address_demands_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="give a token"):
        serve(new_watch(), host=host)


def test_a_token_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(ConfigError, match="has 6 characters; it needs at least 16"):
        serve(new_watch(), host="0.0.0.0", token="secret")  # noqa: S104, S106  (refused)


def test_a_port_that_is_taken_is_an_error_with_advice() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="choose another port"):
            serve(new_watch(), port=taken.getsockname()[1])


@pytest.mark.parametrize("path", ["/", "/?token=", "/?token=wrong", "/?token=wrong&token=wrong", "/ws",
                                  "/static/js/bokeh.min.js", "/x"])  # fmt: skip
def test_without_the_token_there_is_nothing(closed_page: Page, path: str) -> None:
    answer = ask(closed_page, path, Cookie=f"dovetail-{urlsplit(closed_page.url).port}=wrong")
    assert answer.status == 403
    assert "token" in answer.body
    assert "Set-Cookie" not in answer.headers


def test_the_token_buys_a_cookie_and_leaves_the_address(closed_page: Page) -> None:
    answer = ask(closed_page, "/" + closed_page.url.rpartition("/")[2])
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    parts = {part.strip().lower() for part in answer.headers["Set-Cookie"].split(";")}
    assert {"httponly", "samesite=strict"} <= parts
    assert TOKEN not in answer.headers["Set-Cookie"]
    page = ask(closed_page, Cookie=cookie_of(closed_page))
    assert page.status == 200
    assert cookie_of(closed_page).partition("=")[2] not in page.body


def test_the_web_socket_needs_the_cookie_too(closed_page: Page) -> None:
    origin = f"http://{urlsplit(closed_page.url).netloc}"
    assert open_socket(closed_page, Origin=origin) == 403
    assert open_socket(closed_page, Origin=origin, Cookie=cookie_of(closed_page)) == 101
    assert open_socket(closed_page, Origin="http://evil.example", Cookie=cookie_of(closed_page)) == 403


def test_the_address_carries_the_token_and_a_host_to_open(closed_page: Page, open_page: Page) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", open_page.url)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=correct%20horse\S+", closed_page.url)


def test_names_are_escaped_in_the_page() -> None:
    with serve(hostile_watch()) as page:
        body = ask(page).body
    assert "<script>alert" not in body
    assert "<img" not in body


def test_samples_reach_the_charts_and_the_end_is_told() -> None:
    watch = new_watch()
    step(watch, 1.0)
    with serve(watch) as page:
        reader = pull_session(url=page.url)
        assert len(reader.document.get_model_by_name("samples of enriched").data[AT]) == 1
        (session,) = page._server.get_sessions("/")
        source, status = map(session.document.get_model_by_name, ("samples of enriched", "status"))
        for second in range(2, 6):
            step(watch, float(second))
        watch.end("ended")
        deadline = time.monotonic() + 10
        while (len(source.data[AT]) < 5 or "Finished" not in status.text) and time.monotonic() < deadline:
            reader.force_roundtrip()
        assert len(source.data[AT]) == 5
        assert source.data["memory_budget"][-1] == 50 * 2**20
        assert "Finished" in status.text
        reader.close()


def test_closing_twice_is_closing_once() -> None:
    page = serve(new_watch())
    page.close()
    page.close()
    with pytest.raises(ConnectionError):
        ask(page)
