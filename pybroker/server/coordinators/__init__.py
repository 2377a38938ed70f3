"""The shell of the coordinators: a driver with its threads, the way to the log and back from it, and the group coordinator."""
