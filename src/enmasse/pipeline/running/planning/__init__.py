"""From a declared pipeline to queries of Spark: plans, frames of sources, relations, targets."""
