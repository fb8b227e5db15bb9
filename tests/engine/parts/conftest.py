import pytest

from .bench import Bench


@pytest.fixture
def bench():
    return Bench()
