import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stop-every", type=int, default=11, help="which file operations end a command: every n-th")


@pytest.fixture
def stop_every(pytestconfig: pytest.Config) -> int:
    """1 visits every file operation of a command; the default is for continuous integration."""
    every: int = pytestconfig.getoption("--stop-every", 11)
    return every
