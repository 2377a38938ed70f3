"""What every other package may use: ids, the port to the disk. Imports nothing of pybroker."""
