"""Tables of a space's lake, each row exactly once: Delta (the default) and Parquet.

A query writes its batches so:

    table = open_table(place.lake / "readings", mode="append", partition_by=("day",))
    table.prepare(frame.schema, owner="shop.readings/readings", checkpoint=checkpoint)
    query = (
        frame.writeStream.queryName(...)
        .outputMode(table.mode)
        .option("checkpointLocation", checkpoint)
        .foreachBatch(table.add)
        .start()
    )

``relation(spark, path)`` is the table as it is now, for a query over it. ``compact(path)`` is a job for
every few minutes.
"""
