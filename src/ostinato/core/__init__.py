"""The vocabulary of the house: plain data, errors and protocols. Imports nothing else of ours."""
