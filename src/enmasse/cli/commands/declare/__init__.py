"""Commands that declare objects, and show them."""
