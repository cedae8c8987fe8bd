"""The page in a real browser, as people use it: mouse, keyboard, screen reader, phone, wall display."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from agent.explain.sentences import explain
from tests.containermanager.node import budgeted, manifest, topology
from tests.drawing.test_layout import LARGE
from tests.page.site import HOSTILE, Site

pytestmark = pytest.mark.browser
BROWSER, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    assert BROWSER.exists(), "chromium is missing: scripts/bootstrap --unit"
    options = ChromeOptions()
    options.binary_location = str(BROWSER)
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=ChromeService(str(DRIVER)))
    yield driver
    driver.quit()


class Reader:
    """Someone who looks at a site."""

    def __init__(self, chromium: Chrome, site: Site) -> None:
        self.chromium = chromium
        self.site = site
        self.complaints: list[str] = []

    def open(self, path: str = "", *, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
        self.chromium.get(self.site.url + path)

    def open_live(self, **how: Any) -> None:
        self.open(**how)
        self.until(lambda: self.link().startswith("Live"))

    def run(self, script: str, *arguments: Any) -> Any:
        return self.chromium.execute_script(script, *arguments)

    def until(self, true: Callable[[], Any]) -> Any:
        return WebDriverWait(self.chromium, 60, poll_frequency=0.1).until(lambda _: true())

    def find(self, selector: str) -> list[WebElement]:
        return self.chromium.find_elements("css selector", selector)

    def link(self) -> str:
        return str(self.run("return document.getElementById('link').textContent"))

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def press(self, *keys: str) -> None:
        for key in keys:
            self.chromium.switch_to.active_element.send_keys(key)

    def focused(self) -> str:
        """The text of the focused element, its first line."""
        return str(self.run("return document.activeElement.innerText.trim()")).split("\n")[0]

    def polls(self) -> int:
        script = (
            "return performance.getEntriesByType('resource').filter(e => e.name.includes('/live')).length"
        )
        return int(self.run(script))

    def console(self) -> list[str]:
        return self.log("browser")

    def log(self, kind: str) -> list[str]:
        entries: list[dict[str, str]] = self.chromium.get_log(kind)  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries]

    def requests(self) -> list[str]:
        entries = (json.loads(message)["message"] for message in self.log("performance"))
        return [e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"]


@pytest.fixture
def reader(chromium: Chrome, site: Site) -> Iterator[Reader]:
    reader = Reader(chromium, site)
    reader.console()
    reader.requests()
    yield reader
    chromium.get("about:blank")


def test_it_shows_machine_pods_events_and_problems_and_complains_of_nothing(reader: Reader) -> None:
    reader.open_live()
    assert len(reader.find("#picture .cpu")) == 8
    names = [reader.run("return arguments[0].textContent", e) for e in reader.find(".pod .name")]
    assert names == ["default/team", "default/solo", "default/free", "default/huge"]
    assert "main 1-2" in reader.text("#pod-uid-team summary")
    assert "pod shared pool 3" in reader.text("#pod-uid-team summary")
    assert reader.text("#problems p") == "Nothing is wrong."
    assert "rejected pod default/huge" in reader.text("#events li:first-child")
    assert reader.chromium.title.startswith("ready, 0 problems · ")
    assert reader.console() == []


def test_no_request_goes_anywhere_but_to_the_daemon(reader: Reader) -> None:
    reader.open_live()
    start = reader.polls()
    reader.until(lambda: reader.polls() > start + 1)
    asked = [url for url in reader.requests() if not url.startswith(("data:", "about:"))]
    assert asked
    assert [url for url in asked if not url.startswith(reader.site.url)] == []


def test_the_keyboard_alone_opens_a_decision(reader: Reader) -> None:
    reader.open_live()
    reader.press(Keys.TAB)
    assert reader.focused() == "Skip to the pods"
    reader.press(Keys.TAB)
    assert "default/team" in reader.run("return document.activeElement.innerText")
    reader.press(Keys.ENTER)
    known = reader.site.owner.find("default", "team")
    assert known
    wanted = list(explain(known.trace))
    reader.until(lambda: reader.find("#pod-uid-team .trace li"))
    assert [item.text for item in reader.find("#pod-uid-team .trace li")] == wanted
    assert "default/team" in reader.run("return document.activeElement.innerText")
    reader.press(Keys.ENTER)
    reader.until(lambda: not reader.run("return document.querySelector('#pod-uid-team').open"))
    reader.press(Keys.TAB)
    assert "default/solo" in reader.run("return document.activeElement.innerText")


def test_a_refresh_leaves_focus_and_what_has_not_changed(reader: Reader) -> None:
    reader.open_live()
    reader.run(
        "document.querySelector('#pod-uid-solo summary').focus();"
        "for (const node of document.querySelectorAll('main, main *')) node.seen = true"
    )
    reader.run("document.querySelector('#pod-uid-solo').open = true")
    reader.until(lambda: reader.find("#pod-uid-solo .trace li"))
    reader.site.admit(manifest("next", "1"))
    reader.until(lambda: reader.find("#pod-uid-next"))
    assert reader.run("return document.activeElement.closest('details').id") == "pod-uid-solo"
    assert reader.run("return document.querySelector('#pod-uid-solo').open") is True
    fresh = "return [...document.querySelectorAll(arguments[0])].filter(node => !node.seen).length"
    assert reader.run(fresh, "#picture .cpu, #pod-uid-team, #pod-uid-team *, #pod-uid-solo summary *") == 0
    assert reader.run(fresh, "#pod-uid-next") == 1


def test_while_nothing_changes_nothing_is_touched(reader: Reader) -> None:
    reader.open_live()
    reader.run(
        "window.touched = 0; new MutationObserver(found => window.touched += found.length)"
        ".observe(document, {subtree: true, childList: true, attributes: true, characterData: true})"
    )
    start = reader.polls()
    reader.until(lambda: reader.polls() > start + 1)
    assert reader.run("return window.touched") == 0


def test_a_removed_pod_goes_and_its_cpus_are_shared_again(reader: Reader) -> None:
    reader.open_live()
    held = "#picture .cpu[data-pod='default/solo']"
    assert len(reader.find(held)) == 2
    reader.site.remove("solo")
    reader.until(lambda: not reader.find("#pod-uid-solo"))
    assert reader.find(held) == []


def test_problems_are_told_to_who_listens(reader: Reader) -> None:
    reader.open_live()
    region = reader.find("#problems")[0]
    assert region.get_attribute("aria-live") == "polite"
    reader.site.owner.manifest_problems((f"{HOSTILE}.yaml: malformed",))
    reader.until(lambda: reader.find("#problems li"))
    assert region.id == reader.find("#problems")[0].id
    problem, way_out = reader.text("#problems li").split("\n", 1)
    assert problem == f"{HOSTILE}.yaml: malformed"
    assert way_out.strip() == "correct the file: it is read again as soon as it changes"
    assert reader.chromium.title.startswith("ready, 1 problem · ")


def test_hostile_names_are_shown_as_they_are(reader: Reader) -> None:
    reader.site.owner.manifest_problems(("</main><script>document.title = 'hacked'</script>",))
    reader.open_live()
    reader.run("document.querySelector('#pod-uid-team').open = true")
    reader.until(lambda: reader.find("#pod-uid-team .trace li"))
    assert f"file:{HOSTILE}.yaml" in reader.text("#pod-uid-team")
    assert reader.find("img, main script, main ~ main") == []
    assert "hacked" not in reader.chromium.title
    assert reader.console() == []


def test_a_screen_reader_finds_its_way(reader: Reader) -> None:
    reader.open_live()
    tree = reader.chromium.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    told = {
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if not node.get("ignored")
    }
    roles = {role for role, _ in told}
    assert {"banner", "main", "contentinfo", "status"} <= roles
    assert {("region", name) for name in ("Problems", "Machine", "Pods", "Events")} <= told
    assert {("heading", name) for name in ("Problems", "Machine", "Pods", "Events")} <= told
    images = [name for role, name in told if role in {"image", "img"}]
    assert images == ["8 CPUs, 8 cores, 2 packages, 2 NUMA nodes, 8.0 GiB"]
    switches = [name for role, name in told if role == "DisclosureTriangle"]
    assert len(switches) == 4
    assert any("default/team" in name and "Admitted" in name for name in switches)
    assert reader.run("return document.documentElement.lang") == "en"


def test_ids_are_unique_and_levels_of_headings_are_not_skipped(reader: Reader) -> None:
    reader.open_live()
    ids = reader.run("return [...document.querySelectorAll('[id]')].map(node => node.id)")
    assert len(ids) == len(set(ids))
    levels = reader.run("return [...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))


CONTRAST = """
const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
const rgba = (colour) => {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const luminance = (c) => {
  const [r, g, b] = c.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
};
const ground = (node) => {
  for (; node; node = node.parentElement) {
    const colour = rgba(getComputedStyle(node).backgroundColor);
    if (colour[3] === 255) return colour;
  }
  return [255, 255, 255, 255];
};
const poor = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let seen = 0;
for (let text; text = walker.nextNode();) {
  const node = text.parentElement;
  if (!text.data.trim() || !node.checkVisibility() || node.closest('svg, script, style')) continue;
  seen++;
  const [low, high] = [luminance(rgba(getComputedStyle(node).color)), luminance(ground(node))].sort((a, b) => a - b);
  if ((high + .05) / (low + .05) < 4.5) poor.push(text.data);
}
return [seen, poor];
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_in_either_scheme(reader: Reader, scheme: str) -> None:
    reader.site.owner.manifest_problems(("x.yaml: malformed",))
    reader.open_live(scheme=scheme)
    reader.run("document.querySelector('#pod-uid-team').open = true")
    reader.until(lambda: reader.find("#pod-uid-team .trace li"))
    seen, poor = reader.run(CONTRAST)
    assert seen > 50
    assert poor == []
    ground = reader.run("return getComputedStyle(document.documentElement).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(16, 21, 27)"}[scheme]
    shared = reader.run(
        "return getComputedStyle(document.querySelector('#picture .node-shared-pool .cell')).fill"
    )
    assert shared == {"light": "rgb(207, 238, 226)", "dark": "rgb(29, 69, 56)"}[scheme]


@pytest.fixture
def large(chromium: Chrome) -> Iterator[Reader]:
    """A site of 512 CPUs."""
    site = Site(LARGE)
    yield Reader(chromium, site)
    chromium.get("about:blank")
    site.stop()


@pytest.mark.parametrize("width", [360, 768, 1280, 1920, 3840])
def test_nothing_runs_out_of_the_page_on_a_phone_or_a_wall(large: Reader, width: int) -> None:
    large.open_live(width=width, height=1000)
    large.run("document.querySelectorAll('details.pod').forEach(pod => pod.open = true)")
    large.until(lambda: len(large.find(".pod .trace")) == 4)
    assert len(large.find("#picture .cpu")) == 512
    assert large.run("return document.documentElement.scrollWidth") <= width
    right = large.run(
        "return Math.max(...[...document.querySelectorAll('main *')].map(n => n.getBoundingClientRect().right))"
    )
    assert right <= width


def test_the_picture_follows_the_width_of_the_window(large: Reader) -> None:
    large.open_live(width=360)
    narrow = picture_height(large)
    size = {"width": 1900, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    large.chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    large.until(lambda: picture_height(large) < narrow / 2)


def picture_height(reader: Reader) -> float:
    return float(reader.run("return document.querySelector('#picture svg').getBoundingClientRect().height"))


def test_text_in_the_picture_is_as_large_as_beside_it_on_a_wall(reader: Reader) -> None:
    reader.open_live(width=3840, height=2160)
    cpu, word = (
        reader.run("return document.querySelector(arguments[0]).getBoundingClientRect().height", selector)
        for selector in ("#picture .id", ".share")
    )
    assert cpu > 0.6 * word
    machine, pods = (
        reader.run("return document.querySelector(arguments[0]).getBoundingClientRect()", selector)
        for selector in ("#machine", "#pods")
    )
    assert machine["right"] <= pods["left"]
    assert machine["top"] == pods["top"]


def test_it_tells_what_containers_are_bound_to_and_whether_that_holds(reader: Reader) -> None:
    """A unit that runs, a cgroup that is not there yet, and a container of numalet's own."""
    host, document = reader.site.node.outside, budgeted("db")
    document["metadata"]["annotations"] = {"numalet/unit.main": "db.service", "numalet/cgroup.helper": "x/y"}
    document["spec"]["containers"].append({"name": "other"})
    host.start("db.service")
    reader.site.remove("solo")
    reader.site.admit(document, "file:db.yaml")
    reader.open("?open=uid-db")
    assert reader.text("#pod-uid-db thead").strip() == "Container\tKind\tIsolation\tCPUs\tIs"

    def told(container: int) -> str:
        return reader.text(f"#pod-uid-db tbody tr:nth-child({container}) td:last-child")

    assert told(1) == "unit db.service: as decided"
    assert told(2) == "cgroup x/y: waits for its cgroup to appear"
    assert told(3) == "numalet's own"
    host.make("x/y")
    host.end("db.service")
    host.stop("db.service")
    reader.site.owner.reconcile()
    reader.until(lambda: told(2) == "cgroup x/y: as decided")
    assert told(1) == "unit db.service: unit db.service is not-found, not loaded; its CPUs wait for it"
    assert reader.console() == []


def test_a_click_on_a_cpu_opens_its_pod(reader: Reader) -> None:
    reader.open_live()
    reader.find("#picture .cpu[data-cpu='1']")[0].click()
    reader.until(lambda: reader.find("#pod-uid-team .trace li"))
    assert "default/team" in reader.run("return document.activeElement.innerText")


def test_the_cpus_of_the_pod_in_focus_stand_out(reader: Reader) -> None:
    reader.open_live()
    reader.run("document.querySelector('#pod-uid-team summary').focus()")
    script = "return +getComputedStyle(document.querySelector(`#picture .cpu[data-cpu='${arguments[0]}']`)).opacity"
    reader.until(lambda: reader.run(script, 0) == 0.25)
    assert [reader.run(script, cpu) for cpu in (1, 2, 3)] == [1, 1, 1]


def test_a_daemon_that_is_gone_is_told_and_found_again(reader: Reader) -> None:
    reader.open_live()
    reader.site.stop()
    reader.until(lambda: reader.link().startswith("No answer from numalet since"))
    assert len(reader.find("#picture .cpu")) == 8
    reader.site.serve()
    reader.until(lambda: reader.link().startswith("Live"))


def test_a_tab_that_is_looked_at_again_is_refreshed_at_once(reader: Reader) -> None:
    reader.open_live()
    hide = "Object.defineProperty(document, 'hidden', {value: arguments[0], configurable: true});"
    reader.run(hide + "document.dispatchEvent(new Event('visibilitychange'))", True)
    reader.site.admit(manifest("next", "1"))
    reader.run(hide + "document.dispatchEvent(new Event('visibilitychange'))", False)
    reader.until(lambda: reader.find("#pod-uid-next"))


def test_it_can_be_read_without_scripts(reader: Reader) -> None:
    disabled = "Emulation.setScriptExecutionDisabled"
    reader.chromium.execute_cdp_cmd(disabled, {"value": True})
    reader.open("?open=uid-team")
    shown = reader.find("#pod-uid-team .trace li")
    assert shown
    assert len(reader.find("#picture .cpu")) == 8
    reader.chromium.execute_cdp_cmd(disabled, {"value": False})


def test_hotplug_is_drawn(reader: Reader) -> None:
    reader.open_live()
    plugged = reader.site.node.plug(topology(offline=frozenset({7})))
    reader.site.owner.hardware_changed(lambda: plugged)
    reader.until(lambda: reader.find("#picture .cpu.offline[data-cpu='7']"))
    assert len(reader.find("#picture .cpu")) == 8
