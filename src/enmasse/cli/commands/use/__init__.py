"""Commands that use addresses, pipelines and devices."""
