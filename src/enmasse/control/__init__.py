"""What should be against what is: resource store, controllers and the ports they need."""
