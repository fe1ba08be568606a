"""What every role has: context, clients of monitor and peers, policies, workers."""
