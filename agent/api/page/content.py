"""What the page shows, as HTML: the same for the first look and for every refresh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from agent.api.page.budget import Share, cpu_budget, memory_budget
from agent.api.page.markup import Markup, element
from agent.api.remedy import remedy_of
from agent.api.view import picture
from agent.containermanager.events import Event
from agent.containermanager.snapshot import AdmittedPod, EndedPod, RejectedPod, Snapshot
from agent.domain.pod import Pod, PodUid
from agent.domain.qos import qos_class
from agent.drawing.palette import css_class
from agent.drawing.picture import Kind, Picture, size
from agent.drawing.svg import PATTERNS, Names, svg
from agent.explain.english import plural
from agent.explain.sentences import explain

EVENTS_SHOWN: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What one reader looks at: the width of their picture, and the pods whose decision they read."""

    width: int
    scale: float = 1.0
    opened: frozenset[str] = frozenset()


def main(snapshot: Snapshot, events: Sequence[Event], view: View) -> Markup:
    """Everything that changes."""
    drawn = picture(snapshot)
    return element(
        "main",
        _status(snapshot),
        _problems(snapshot),
        _picture(snapshot, drawn, view),
        _pods(snapshot, drawn, view),
        _events(events),
        id="live",
        data_state=f"{'not ready' if snapshot.failures else 'ready'}, {plural(len(snapshot.troubles), 'problem')}",
    )


def _section(name: str, heading: str, *content: str, **attributes: str) -> Markup:
    title = element("h2", heading, id=f"{name}-heading")
    return element("section", title, *content, id=name, aria_labelledby=f"{name}-heading", **attributes)


def _status(snapshot: Snapshot) -> Markup:
    ready = not snapshot.failures
    online, exclusive = len(snapshot.topology.online), len(snapshot.exclusive)
    facts = (
        ("Node", "ready" if ready else "not ready"),
        ("Pods", _counts(snapshot)),
        ("CPUs held by pods", f"{exclusive} of {online}"),
        ("Memory held by pods", _held_memory(snapshot)),
        ("Problems", str(len(snapshot.troubles) or "none")),
    )
    tiles = (
        element("div", element("dt", name), element("dd", value), class_=_tile_class(name, snapshot))
        for name, value in facts
        if value
    )
    return element("dl", *tiles, class_="tiles", id="status")


def _counts(snapshot: Snapshot) -> str:
    ended = (f"{len(snapshot.ended)} succeeded",) if snapshot.ended else ()
    return ", ".join((f"{len(snapshot.pods)} admitted", *ended, f"{len(snapshot.rejected)} rejected"))


def _tile_class(name: str, snapshot: Snapshot) -> str:
    wrong = {"Node": snapshot.failures, "Problems": snapshot.troubles}.get(name, ())
    return "tile wrong" if wrong else "tile"


def _held_memory(snapshot: Snapshot) -> str:
    tables = [table for node in snapshot.state.memory.nodes.values() for table in node.tables.items()]
    held = sum(table.reserved for kind, table in tables if kind == "memory")
    total = sum(table.allocatable for kind, table in tables if kind == "memory")
    return f"{size(held)} of {size(total)}" if tables else ""


def _problems(snapshot: Snapshot) -> Markup:
    troubles = snapshot.troubles
    rows = [element("li", text, *_way_out(remedy_of(snapshot, text))) for text in troubles]
    content = element("ul", *rows) if rows else element("p", "Nothing is wrong.")
    return _section("problems", "Problems", content, class_="wrong" if rows else "fine", aria_live="polite")


def _way_out(remedy: str) -> Iterator[Markup]:
    if remedy:
        yield element("p", remedy, class_="remedy")


def _picture(snapshot: Snapshot, drawn: Picture, view: View) -> Markup:
    if snapshot.withdrawn:
        return _section("machine", "Machine", element("p", snapshot.withdrawn))
    drawing = Markup(svg(drawn, view.width, names=Names.ELSEWHERE, scale=view.scale))
    return _section("machine", "Machine", element("div", drawing, id="picture"))


def _pods(snapshot: Snapshot, drawn: Picture, view: View) -> Markup:
    admitted = [_admitted(snapshot, pod, drawn, view) for pod in snapshot.pods.values()]
    ended = [_ended(pod, view) for pod in snapshot.ended.values()]
    rejected = [_rejected(pod, view) for pod in snapshot.rejected.values()]
    if not (admitted or ended or rejected):
        return _section("pods", "Pods", element("p", "There are no pods.", class_="quiet"))
    return _section("pods", "Pods", *admitted, *ended, *rejected)


def _admitted(snapshot: Snapshot, entry: AdmittedPod, drawn: Picture, view: View) -> Markup:
    pod = entry.pod
    reasons = snapshot.degraded.get(pod.uid, ())
    state = "Degraded" if reasons else "Admitted"
    cpus, memory = cpu_budget(snapshot, entry), memory_budget(snapshot, entry)
    head = (
        *_heading(drawn.letters.get(pod.full_name, ""), pod.full_name, state),
        _bar("CPU", cpus, f"{sum(share.amount for share in cpus):g}"),
        _bar("Memory", memory, size(int(sum(share.amount for share in memory)))),
    )
    body = [element("p", reason, class_="wrong") for reason in reasons]
    body.append(
        _facts(("QoS class", qos_class(pod).value), ("Source", entry.source), ("Since", entry.admitted_at))
    )
    return _pod(pod.uid, pod.full_name, head, (*body, *_decision(snapshot, entry, view)), view)


def _ended(entry: EndedPod, view: View) -> Markup:
    pod = entry.pod
    told = element("span", "it holds nothing any more", class_="told")
    facts = _facts(("Source", entry.source), ("Since", entry.ended_at))
    return _pod(pod.uid, pod.full_name, (*_heading("", pod.full_name, "Succeeded"), told), (facts,), view)


def _rejected(entry: RejectedPod, view: View) -> Markup:
    pod = entry.pod
    head = (
        *_heading("", pod.full_name, "Rejected"),
        element("span", f"{entry.reason}: {entry.message}", class_="told"),
    )
    remedy = (("Way out", entry.remedy),) if entry.remedy else ()
    facts = _facts(*remedy, ("Source", entry.source), ("Since", entry.rejected_at))
    return _pod(pod.uid, pod.full_name, head, (facts, *_why(entry, view)), view)


def _pod(uid: PodUid, name: str, head: Sequence[Markup], body: Sequence[Markup], view: View) -> Markup:
    return element(
        "details",
        element("summary", *head),
        element("div", *body, class_="body"),
        id=f"pod-{uid}",
        class_="pod",
        data_uid=uid,
        data_pod=name,
        open=uid in view.opened,
    )


def _heading(letter: str, name: str, state: str) -> Iterator[Markup]:
    yield element("span", letter or "·", class_="letter" if letter else "letter none", aria_hidden="true")
    yield element("span", name, class_="name")
    yield element("span", state, class_=f"state {state.lower()}")


def _bar(name: str, shares: Sequence[Share], total: str) -> Markup:
    """A bar of the parts, and these in words, each behind its colour."""
    whole = sum(share.amount for share in shares)
    if not whole:
        nothing = "none of its own: node shared pool" if name == "CPU" else "no limit"
        return element("span", element("b", name), f" {nothing}", class_="budget")
    parts = []
    start = 0.0
    for share in shares:
        parts.append(_part(share.kind, start, 100 * share.amount / whole))
        start += 100 * share.amount / whole
    drawing = element("svg", *parts, class_="bar numalet", height="12", aria_hidden="true")
    words = (
        element("span", element("i", class_=f"swatch {css_class(share.kind)}"), share.words, class_="share")
        for share in shares
    )
    return element("span", element("b", f"{name} {total}"), " ", *words, drawing, class_="budget")


def _part(kind: Kind, start: float, width: float) -> Markup:
    place = {"x": f"{start:.3f}%", "width": f"{width:.3f}%", "height": "12"}
    cell = element("rect", class_="cell", **place)
    over = [element("rect", fill=f"url(#numalet-{PATTERNS[kind]})", **place)] if kind in PATTERNS else []
    return element("g", cell, *over, class_=css_class(kind))


def _facts(*facts: tuple[str, str]) -> Markup:
    rows = (element("div", element("dt", name), element("dd", value)) for name, value in facts)
    return element("dl", *rows, class_="facts")


def _decision(snapshot: Snapshot, entry: AdmittedPod, view: View) -> Iterator[Markup]:
    pod = entry.pod
    if pod.uid in view.opened:
        rows = [
            element(
                "tr",
                element("th", container.name, scope="row"),
                element("td", container.kind.value),
                element("td", entry.isolation[container.name].value),
                element("td", str(snapshot.cpus(pod.uid, container.name))),
                *([_bound_to(snapshot, pod, container.name)] if pod.bindings else ()),
            )
            for container in pod.containers
        ]
        names = ("Container", "Kind", "Isolation", "CPUs", *(["Is"] if pod.bindings else ()))
        head = element("tr", *(element("th", name, scope="col") for name in names))
        yield element(
            "div", element("table", element("thead", head), element("tbody", *rows)), class_="scroll"
        )
    yield from _why(entry, view)


def _bound_to(snapshot: Snapshot, pod: Pod, container: str) -> Markup:
    """Whose cgroup the container's is, and whether it has what was decided."""
    binding = pod.bindings.get(container)
    if binding is None:
        return element("td", "numalet's own")
    lack = snapshot.binding_lacks.get((pod.uid, container), "")
    standing = element("span", lack or "as decided", class_="lack" if lack else "fine")
    return element("td", f"{binding}: ", standing)


def _why(entry: AdmittedPod | RejectedPod, view: View) -> Iterator[Markup]:
    uid = entry.pod.uid
    if uid not in view.opened:
        link = element("a", "Show the decision", href=f"/?open={uid}#pod-{uid}", class_="fetch")
        yield element("p", link)
        return
    yield element("h3", "Why")
    yield element("ol", *(element("li", line) for line in explain(entry.trace)), class_="trace")


def _events(events: Sequence[Event]) -> Markup:
    shown = list(events)[-EVENTS_SHOWN:]
    rows = [
        element(
            "li",
            element("time", _moment(event.time), datetime=event.time),
            element("span", event.kind.value, class_="kind"),
            element("span", event.text, class_="told"),
            id=f"event-{event.sequence}",
            class_=event.type.lower(),
        )
        for event in reversed(shown)
    ]
    content = element("ol", *rows) if rows else element("p", "Nothing has happened yet.", class_="quiet")
    older = f"The newest {EVENTS_SHOWN}; older ones: numalet events." if len(events) > EVENTS_SHOWN else ""
    return _section("events", "Events", content, element("p", older, class_="quiet") if older else "")


def _moment(time: str) -> str:
    """``2026-01-01T00:00:01.123456Z`` to the second, as people read it."""
    return f"{time[:10]} {time[11:19]} UTC" if len(time) > 18 else time
