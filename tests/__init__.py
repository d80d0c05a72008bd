"""The tests of Ostinato. What several of them use is in `tests.support`."""
