"""The local cluster for every test that asks for it."""

pytest_plugins = ["kvpp_devcluster.pytest_plugin"]
