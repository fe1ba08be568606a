"""Shared parts of all roles: context, clients of monitor and peers, policies, workers."""
