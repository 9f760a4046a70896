"""The control process: what it is made of is put together here, for as many nodes as there are."""
