"""The resident session as a process: HTTP on a private socket, and on request on loopback."""
