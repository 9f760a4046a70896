"""``python -m enmasse``: the same as the ``enmasse`` command."""

import sys

from enmasse.cli.main import main

sys.exit(main())
