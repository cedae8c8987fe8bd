"""What the page's address answers, and to whom."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256

import pytest

from agent.api.http import Request
from agent.api.page.face import Face, is_ours
from agent.config.address import Address
from agent.explain.sentences import explain
from tests.containermanager.node import manifest, topology
from tests.page.site import HOSTILE, Site


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:9447", "[::1]:9447", "localhost", "LOCALHOST:1", "10.0.0.7:9447", "db7:9447"],
)
def test_who_asks_for_this_host_is_answered(host: str) -> None:
    assert is_ours(host, "db7")


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:9447",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "[::1",
        ":9447",
    ],
)
def test_who_was_led_here_by_another_name_is_not(host: str) -> None:
    assert not is_ours(host, "db7")
    assert not is_ours(host, "")


@pytest.mark.parametrize("path", ["/", "/live"])
def test_a_rebound_name_gets_nothing_of_the_page(site: Site, path: str) -> None:
    response, body = site.ask(path, Host="evil.example")
    assert response.status == 421
    assert body == (
        "this is not 'evil.example': ask for the IP address, localhost, or the host of metricsBindAddress\n"
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/live", "/metrics", "/v1/pods/default/team"])
def test_nothing_can_be_changed(site: Site, method: str, path: str) -> None:
    response, _ = site.ask(path, method)
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    assert site.owner.find("default", "team")


def test_head_is_get_without_the_body(site: Site) -> None:
    got, body = site.ask("/")
    told, nothing = site.ask("/", "HEAD")
    assert (told.status, nothing) == (200, "")
    assert told.headers["Content-Length"] == got.headers["Content-Length"] == str(len(body.encode()))


def test_nothing_but_the_page_itself_may_run_or_be_loaded(site: Site) -> None:
    response, body = site.ask("/")
    policy = dict(
        part.strip().split(" ", 1) for part in response.headers["Content-Security-Policy"].split(";")
    )
    (script,) = re.findall(r"<script>(.*?)</script>", body, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", body, re.DOTALL)
    assert policy == {
        "default-src": "'none'",
        "script-src": digest(script),
        "style-src": digest(style),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert " style=" not in body
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", body)


def digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def test_who_has_the_newest_gets_304_until_something_changes(site: Site) -> None:
    first, body = site.ask("/live?width=600")
    tag = first.headers["ETag"]
    again, nothing = site.ask("/live?width=600", If_None_Match=tag)
    assert (again.status, nothing) == (304, "")
    assert site.ask("/live?width=280", If_None_Match=tag)[0].status == 200
    site.admit(manifest("next"))
    changed, other = site.ask("/live?width=600", If_None_Match=tag)
    assert changed.status == 200
    assert "default/next" in other
    assert "default/next" not in body


def test_every_kind_of_change_is_seen(site: Site) -> None:
    seen = {site.ask("/live")[1]}
    changes: tuple[Callable[[], None], ...] = (
        lambda: site.owner.manifest_problems(("x.yaml: malformed",)),
        lambda: site.owner.manifest_problems(()),
        lambda: site.remove("free"),
        lambda: site.admit(manifest("huge", "901")),
        lambda: site.owner.hardware_changed(lambda: site.node.plug(topology(offline=frozenset({1})))),
    )
    for change in changes:
        change()
        seen.add(site.ask("/live")[1])
    assert len(seen) == 6


def test_a_problem_is_told_with_its_way_out(site: Site) -> None:
    site.owner.hardware_changed(lambda: site.node.plug(topology(offline=frozenset({1}))))
    site.owner.manifest_problems(("x.yaml: malformed",))
    body = site.ask("/live")[1]
    assert "default/team is degraded" in body
    assert "place it anew: numalet delete default/team, then apply it</p>" in body
    assert "x.yaml: malformed<p" in body
    assert "it is read again as soon as it changes</p>" in body


def test_polling_does_not_draw_again(site: Site) -> None:
    face, request = Face(site.owner, Address("", 0)), Request(host="localhost", query="width=600")
    face.live(request)
    before = dict(face._rendered._views)
    face.live(request)
    after = face._rendered._views
    assert [id(text) for text in before.values()] == [id(text) for text in after.values()]


def test_what_is_kept_for_readers_is_bounded(site: Site) -> None:
    face = Face(site.owner, Address("", 0))
    for number in range(100):
        assert face.live(Request(host="localhost", query=f"open={number}")).status == 200
    assert len(face._rendered._views) <= 32


@pytest.mark.parametrize(
    "query", ["width=x", "width=nan", "width=-1", "width=1e9", "scale=inf", "width=", "%ff"]
)
def test_odd_questions_are_answered_within_bounds(site: Site, query: str) -> None:
    response, body = site.ask(f"/live?{query}")
    assert response.status == 200
    (width,) = re.findall(r'<svg xmlns="[^"]*" class="numalet"[^>]* width="([\d.]+)"', body)
    assert 200 <= float(width) <= 4000


def test_the_decision_is_told_in_the_words_of_describe_where_it_is_asked_for(site: Site) -> None:
    known = site.owner.find("default", "team")
    assert known
    lines = explain(known.trace)
    opened = site.ask(f"/live?open={known.pod.uid}")[1]
    closed = site.ask("/live")[1]
    assert all(escaped(line) in opened for line in lines)
    assert not any(f"<li>{escaped(line)}</li>" in closed for line in lines)


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("'", "&#x27;").replace("<", "&lt;").replace(">", "&gt;")


def test_what_others_wrote_is_never_markup(site: Site) -> None:
    site.owner.manifest_problems((f"{HOSTILE}\x1b\x00.yaml: </script><script>alert(2)</script>",))
    for target in (
        "/",
        "/live?open=uid-team",
        f"/?open={HOSTILE.replace(' ', '%20')}",
        "/?open=</style><script>",
    ):
        body = site.ask(target.replace("<", "%3C").replace(">", "%3E").replace('"', "%22"))[1]
        assert "<img" not in body
        assert "alert(2)</script>" not in body
        assert body.count("<script") == (1 if target.startswith("/?") or target == "/" else 0)
        assert "&lt;img src=x onerror=alert(1)&gt;&quot;&#x27;&amp;" in body
        assert not set(body) & {"\x00", "\x1b"}


def test_a_machine_that_cannot_be_relied_on_is_not_drawn(site: Site) -> None:
    def look() -> None:
        raise OSError("sysfs is gone")

    site.owner.hardware_changed(look)  # type: ignore[arg-type]
    body = site.ask("/live")[1]
    assert "sysfs is gone" in body
    assert 'class="cpu' not in body
    assert 'data-state="not ready, 1 problem"' in body
