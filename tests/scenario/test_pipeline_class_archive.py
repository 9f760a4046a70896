"""Java starts Spark from the archive of its classes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyspark
import pytest

from enmasse.pipeline.session import find_java, sharing_options


@pytest.mark.spark
@pytest.mark.slow
def test_java_takes_sparks_classes_from_the_archive_that_setup_made(needs_spark: None) -> None:
    options = sharing_options(find_java()).replace("-Xlog:disable", "-Xlog:class+load").split()
    if not options:
        pytest.fail("there is no archive: python -m enmasse.pipeline prepare")
    home = Path(pyspark.__file__).parent
    (first,) = (home / "jars").glob("slf4j-api-*.jar")
    # As Spark's own script puts it; an archive fits one class path.
    classes = f"{home}/conf:{first}:{home}/jars/*"
    done = subprocess.run(
        [find_java(), *options, "-cp", classes, "org.apache.spark.deploy.SparkSubmit", "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)" in done.stdout
