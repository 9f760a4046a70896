"""One machine's processes: started in order, started again when they die, stopped in order."""
