"""The servers under test, and the clients that talk to them."""

import os

import pytest
from fleet import Fleet
from fleet_server import FleetServer


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def server(request, tmp_path_factory):
    """One server per database, shared by the tests that leave it usable."""
    if request.param == "postgres" and "TEST_PG_URL" not in os.environ:
        pytest.skip("TEST_PG_URL names no PostgreSQL server (scripts/with-postgres sets it)")
    with FleetServer(tmp_path_factory.mktemp(request.param), request.param) as server:
        yield server


@pytest.fixture(scope="session")
def owner(server):
    """A client with all scopes."""
    return Fleet(server.root_url, server.credentials)


@pytest.fixture
def passer_by(server):
    """A client without credentials."""
    return Fleet(server.root_url)


@pytest.fixture
def own_server(tmp_path):
    """A server for one test, which may stop, flood or fill it."""
    with FleetServer(tmp_path) as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows the log of the server."""
    report = yield
    if report.failed:
        for fixture in getattr(item, "funcargs", {}).values():
            if isinstance(fixture, FleetServer):
                report.sections.append(("server log", fixture.log_tail()))
    return report
