"""Gives a process that a test starts the device of the tests: Python imports this file when it starts.

It is found where a session of tests has a pretended device (`device_session.py`), and only there.
"""

from tests.support.device_session import install_here

install_here()
