"""Decides what to show, ask and say: pure functions of API objects and of the time, which is an argument."""
