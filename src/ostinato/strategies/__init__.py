"""Where parameters live, how processes exchange data, and the number formats of computation."""
