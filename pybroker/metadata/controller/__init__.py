"""What the active controller decides: pure functions from an image and a request to records and a response.

A decision changes nothing. Its records are written and committed, and only their replay, by `MetadataDelta`, changes what
the next decision sees. One module per family of requests; `controller.py` holds them together.
"""
