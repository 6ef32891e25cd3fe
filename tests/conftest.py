"""The local cluster for every test that asks for it."""

import signal

pytest_plugins = ["kvpp_devcluster.pytest_plugin"]


def pytest_configure() -> None:
    """Where the tests run as a shell's background job, Ctrl-C is ignored, and by all that they start: a test that
    interrupts something would wait for ever."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
