"""Resident host: keeps values in a process beside the Python workers of an executor, which any of them calls.

* `service`: values, their calls, and what the resident process answers over a socket.
* `process`: starts the resident process, and starts it again if it has died.
* `client`: calls from a worker; without a resident process the worker keeps the values itself.
"""
