"""One site a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.page.site import Site


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.stop()
