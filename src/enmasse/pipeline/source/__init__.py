"""``format("enmasse")`` for reading: streams by offset."""
