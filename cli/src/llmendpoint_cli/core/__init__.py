"""What is shown, asked and said: pure functions of API objects and of the time, which is an argument."""
