"""The Python processes that Spark starts: how they begin, and what they share."""
