"""The data-plane process: wire, messaging, storage and net put together, with management."""
