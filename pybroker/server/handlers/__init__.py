"""What a broker does with a request: one module per family of APIs, one class with what its handlers need.

A handler gets the request and its message and returns the response, or None if it answers later by `request.respond`.
"""
