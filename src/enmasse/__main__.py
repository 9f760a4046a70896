"""``python -m enmasse`` is the same as ``enmasse``."""

from __future__ import annotations

from enmasse.cli.main import main

if __name__ == "__main__":
    main()
