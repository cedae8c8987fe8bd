"""The page: what is kept from the scrape before is what a scrape without a past would show."""

from __future__ import annotations

import pytest

from agent.metrics.rendering import Renderer
from tests.containermanager.node import budgeted, manifest
from tests.metrics.scraped import SAMPLE, Scraped

TEXT = "text/plain"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.mark.parametrize("accept", [TEXT, OPENMETRICS])
def test_a_page_after_changes_is_the_page_of_a_first_scrape(accept: str) -> None:
    scraped = Scraped()

    def assert_fresh() -> None:
        page = scraped.page(accept)
        assert page.encode() == Renderer(accept).page(scraped.metrics.families())
        series = [(name, labels) for name, labels, _ in SAMPLE.findall(page)]
        assert len(series) == len(set(series)) > 100

    assert_fresh()
    for name in ("b", "a"):  # the second comes before the first on the page
        scraped.admit(manifest(name, cpu="1"))
        assert_fresh()
    scraped.admit(budgeted("c"), manifest("d", cpu="64"))
    assert_fresh()
    scraped.owner.remove(next(iter(scraped.owner.snapshot().pods)), 0)
    assert_fresh()


def test_scrapes_in_two_formats_do_not_mix() -> None:
    scraped = Scraped()
    pages = [scraped.page(accept) for accept in (TEXT, OPENMETRICS, TEXT, OPENMETRICS)]
    assert pages[:2] == pages[2:]
    assert [page.count("# EOF\n") for page in pages] == [0, 1, 0, 1]
    assert 'numa_node="0"' in pages[0]
    assert "# TYPE resource_manager_container_assignments untyped\n" in pages[0]
    assert "# TYPE resource_manager_container_assignments unknown\n" in pages[1]
