"""A Spark driver to be killed: it writes what a queue gave, one file for each batch, and starts again what fails."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")

from enmasse.pipeline.session import start_session  # PySpark warns when it is imported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(url: str, address: str, folder: Path) -> None:
    spark = start_session("driver", folder / "work", cores=1, quick=True)
    tables = folder / "table"
    tables.mkdir(exist_ok=True)

    def keep(frame: DataFrame, batch: int) -> None:
        rows = [[row["offset"], bytes(row["value"]).decode()] for row in frame.sort("offset").collect()]
        path = tables / f"{batch}.json"
        if path.exists():
            assert json.loads(path.read_text()) == rows, f"batch {batch} was read again and differs"
            return
        temporary = tables / f".{batch}"
        temporary.write_text(json.dumps(rows))
        temporary.rename(path)

    checkpoint = str(folder / "checkpoint")
    options = {"url": url, "address": address, "spoolDir": str(folder / "spool"), "checkpointLocation": checkpoint}
    while True:
        query = (
            spark.readStream.format("enmasse")
            .options(**options, maxOffsetsPerTrigger="40", retryTimeout="20s")
            .load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        sys.stdout.write("running\n")
        sys.stdout.flush()
        try:
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001  # whatever it is, the next attempt shows whether it matters
            if "differs" in str(error):
                (folder / "differs").write_text(str(error))
            (folder / "failures").open("a").write(f"{str(error)[:2000]}\n\n")
            time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
