"""The processes of one machine: started in order, restarted when they die, stopped in order."""
