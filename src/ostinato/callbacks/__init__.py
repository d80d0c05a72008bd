"""Callbacks: they observe a run and steer it by setting flags on the control. They never hold the trainer."""
