"""What moves batches on: checking, sending, writing their files, deleting."""
