"""Where parameters live, how processes agree, and in which number format they compute."""
