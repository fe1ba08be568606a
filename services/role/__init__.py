"""What every role has: its context, its loop, its clients, its workers."""
