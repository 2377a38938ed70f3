"""What every other package may use: ids. Imports nothing of pybroker."""
