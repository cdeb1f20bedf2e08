"""One suite for every database module. It asks a module's CAPABILITIES and never its name.

The suite is in `simulator/testing/`, so that other packages can run it, too. Here a module joins with one
entry in `entries.py` and a `ServerUnderTest` that knows how to look into and how to disturb its database.
"""
