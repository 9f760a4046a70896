"""The demonstration: a fleet of devices, a Spark job and a live picture of both."""
