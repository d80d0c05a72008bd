"""The shared vocabulary of the package: plain data, errors and protocols. It imports no other package of ours."""
