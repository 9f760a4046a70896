"""The control plane: the resource store, the controllers that reconcile it with nodes, and the ports they need."""
