"""``python -m enmasse.demo --seconds 60``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from enmasse.demo.main import run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m enmasse.demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0, help="how long; 0: until Ctrl-C")
    parser.add_argument("--data", type=Path, default=Path(".enmasse"), help="folder of everything it keeps")
    parser.add_argument("--nodes", type=int, help="how many nodes; by default as many as the last run had, or one")
    options = parser.parse_args()
    sys.exit(run(options.seconds, options.data, options.nodes))
