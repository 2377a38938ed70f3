"""Puts the parts together into a node: its life, the handlers of requests, what applies changed metadata."""
