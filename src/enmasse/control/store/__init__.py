"""The resource store and the registry on top of it: writes, watches, history, field ownership."""
