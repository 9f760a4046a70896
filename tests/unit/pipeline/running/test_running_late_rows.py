"""Which rows are late, and by which watermark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.running.steps.late_rows import is_late, watermark_for_late_rows

WATERMARK = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", None])
def test_a_row_at_the_watermark_is_late_as_spark_has_it_and_one_without_a_moment_is_not(zone: str | None) -> None:
    after = timedelta(microseconds=1)
    moments = [WATERMARK - after, WATERMARK, WATERMARK + after, None]
    if zone is None:
        moments = [None if moment is None else moment.replace(tzinfo=None) for moment in moments]
    late = is_late(pa.array(moments, pa.timestamp("us", zone)), int(WATERMARK.timestamp() * 1000))
    assert late.to_pylist() == [True, True, False, False]


def test_the_watermark_is_that_of_the_batch_before(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for batch, watermark in enumerate((0, 1769860790000, 1769861390000)):
        text = (
            f'v1\n{{"batchWatermarkMs":{watermark},"batchTimestampMs":1795781717727,"conf":{{}}}}\n{{"logOffset":0}}'
        )
        (tmp_path / "offsets" / str(batch)).write_text(text)
    assert [watermark_for_late_rows(tmp_path, batch) for batch in range(4)] == [0, 0, 1769860790000, 1769861390000]
    with pytest.raises(PlanError, match=r"cannot read the watermark from .*offsets/3: No such file .*all machines"):
        watermark_for_late_rows(tmp_path, 4)
