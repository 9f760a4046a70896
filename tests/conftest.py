"""What every test may rely on."""

from __future__ import annotations

import os

from hypothesis import settings

# Examples are never timed, as the machine is shared. With CI=true they are fewer, and the same in
# every run.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "local")

# Java programs live for seconds here: compiling their code twice takes longer than it saves.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
