"""What several tests use: models and data, both libraries behind one face, recorders, programs in several processes.

Each module has one subject. Tests and the programs they start import them as `tests.support.<module>`.
"""
