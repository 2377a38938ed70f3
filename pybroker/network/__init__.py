"""The reactor: listeners, network threads, the request queue and the handler threads, under a `service.Service`.

`socket_server.SocketServer` puts it together. A connection belongs to one network thread, which alone touches its socket.
"""
