"""The console's pages in the package are what its source makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import enmasse
from tests.console.node_packages import SOURCE, bring_packages, run

KEPT = Path(enmasse.__file__).parent / "console/static"

pytestmark = pytest.mark.slow


@pytest.mark.timeout(600)
def test_what_is_kept_is_what_the_source_makes(tmp_path: Path) -> None:
    bring_packages()
    made = tmp_path / "static"
    run("npm", "run", "build", "--", "--out", str(made))

    names = {path.name for path in made.iterdir()}
    assert names == {path.name for path in KEPT.iterdir()}, "`make console` builds the pages anew"
    differing = [name for name in sorted(names) if (made / name).read_bytes() != (KEPT / name).read_bytes()]
    assert differing == [], "`make console` builds the pages anew"


def test_the_page_asks_for_nothing_from_elsewhere() -> None:
    # The policy it is served under forbids it; here it is seen before a browser says so.
    page = (KEPT / "index.html").read_text()
    assert "<style" not in page
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    assert scripts == [""]
    named = re.findall(r'(?:src|href)="(?!data:)([^"]+)"', page)
    assert len(named) == 2
    assert all((KEPT / name.removeprefix("/console/")).is_file() for name in named)
    for style in KEPT.glob("*.css"):
        assert re.findall(r"url\((?!\"?data:)[^)]*\)|@import", style.read_text()) == []


def test_the_lock_file_names_versions_and_checksums_and_no_host() -> None:
    lock = (SOURCE / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert lock.count('"integrity"') >= lock.count('"node_modules/') > 0
