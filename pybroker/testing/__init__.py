"""What tests need of pybroker: stand-ins for the world around it, with the faults that the world has."""
