"""The journal: its process, the LMDB adapter behind the storage port, replay and tools."""
