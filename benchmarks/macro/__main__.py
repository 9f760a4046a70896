"""``python -m benchmarks.macro``: measure what docs/reference/performance.md compares, and write it there.

It takes the options of ``python -m benchmarks``. With ``--write`` it measures nothing and only writes the page anew
from what was recorded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.__main__ import make_parser, run_suites
from benchmarks.macro.page import renew
from benchmarks.macro.recording import record, write
from benchmarks.reporting import Results

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "benchmarks" / "results" / "direct.json"
PAGE = ROOT / "docs" / "reference" / "performance.md"
SUITES = ("anycast", "connections", "tls", "spending")


def main() -> int:
    """Run the suites, keep what they found, and write the page; 1 when something could not be measured."""
    parser = make_parser()
    parser.prog = "python -m benchmarks.macro"
    parser.description = __doc__
    parser.add_argument("--write", action="store_true", help="measure nothing: write the page from what was recorded")
    given = parser.parse_args()
    is_done = True
    if not given.write:
        given.suites = given.suites or list(SUITES)
        results = Results(given.directory, sys.argv[1:])
        is_done = run_suites(given, results)
        command = [".venv/bin/python", "-m", "benchmarks.macro", *sys.argv[1:]]
        write(RECORDED, record(results.path.read_text().splitlines(), command))
    PAGE.write_text(renew(PAGE.read_text(), json.loads(RECORDED.read_text())))
    return int(not is_done)


if __name__ == "__main__":
    sys.exit(main())
