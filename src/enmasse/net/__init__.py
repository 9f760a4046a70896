"""The asyncio shell: event loop, listeners, transports."""
